// Uses NCCL directly instead of libtorch's ProcessGroupNCCL, which differs between releases, has
// threads of its own, and knows neither our rendezvous nor our watchdog. This file makes no
// decisions. Not yet verified on several GPUs.
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstring>

#include "strata/base/error_source.h"
#include "strata/comm/collective_library.h"

namespace strata {
namespace {

LibraryFailure failure_of(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
    case ncclInProgress:
      return LibraryFailure::kNone;
    case ncclUnhandledCudaError:
      return LibraryFailure::kDevice;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return LibraryFailure::kMisuse;
    default:  // system, NCCL or peer: mostly the network
      return LibraryFailure::kPeer;
  }
}

std::string text_of_result(ncclResult_t result, ncclComm_t communicator) {
  return std::string(ncclGetErrorString(result)) + ": " + ncclGetLastError(communicator);
}

constexpr ErrorSource kNcclErrors{"comm.nccl", "run with NCCL_DEBUG=WARN, which says why"};
constexpr const char* kRefused = "NCCL refuses a call";

void check(const char* call, ncclResult_t result) {
  if (failure_of(result) != LibraryFailure::kNone)
    throw kNcclErrors.system(call, kRefused, "", text_of_result(result, nullptr));
}

void check(const char* call, cudaError_t result) {
  if (result != cudaSuccess)
    throw kNcclErrors.system(call, kRefused, "", cudaGetErrorString(result));
}

ncclDataType_t type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclFloat16;
    default:
      throw InternalError({.operation = "comm.nccl",
                           .where = "sum",
                           .what = "a type that sums are not made of",
                           .expected = "fp64, fp32, bf16 or fp16",
                           .got = c10::toString(dtype),
                           .fix = ""});
  }
}

ncclComm_t communicator(void* handle) { return static_cast<ncclComm_t>(handle); }
cudaStream_t native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }
std::size_t count(const at::Tensor& x) { return static_cast<std::size_t>(x.numel()); }

// Transfers move bytes of any type.
constexpr ncclDataType_t kBytes = ncclUint8;

class Nccl final : public CollectiveLibrary {
 public:
  bool present() const override { return true; }

  int version() const override {
    int version = 0;
    check("ncclGetVersion", ncclGetVersion(&version));
    return version;
  }

  std::uint64_t device_id(Device device) const override {
    cudaDeviceProp properties{};
    check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device.index));
    std::uint64_t halves[2];
    static_assert(sizeof halves == sizeof properties.uuid);
    std::memcpy(halves, &properties.uuid, sizeof halves);
    return halves[0] ^ halves[1];
  }

  std::string unique_id() const override {
    ncclUniqueId id;
    check("ncclGetUniqueId", ncclGetUniqueId(&id));
    return {id.internal, sizeof id.internal};
  }

  Handle init_rank(const std::string& unique_id, int rank, int size, Device device) const override {
    ncclUniqueId id;
    STRATA_CHECK_EQ(unique_id.size(), sizeof id.internal, "comm.nccl");
    std::memcpy(id.internal, unique_id.data(), sizeof id.internal);
    check("cudaSetDevice", cudaSetDevice(device.index));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // a thread of NCCL's own joins and launches, and a call returns at once
    ncclComm_t made = nullptr;
    check("ncclCommInitRankConfig", ncclCommInitRankConfig(&made, size, id, rank, &config));
    return made;
  }

  LibraryState state(Handle handle) const override {
    ncclResult_t result = ncclSuccess;
    const ncclResult_t status = ncclCommGetAsyncError(communicator(handle), &result);
    if (status != ncclSuccess) result = status;
    LibraryState state{.done = result != ncclInProgress, .failure = failure_of(result)};
    if (state.failure != LibraryFailure::kNone)
      state.error = text_of_result(result, communicator(handle));
    return state;
  }

  void finalize(Handle handle) const override {
    check("ncclCommFinalize", ncclCommFinalize(communicator(handle)));
  }
  void destroy(Handle handle) const override {
    check("ncclCommDestroy", ncclCommDestroy(communicator(handle)));
  }
  void abort(Handle handle) const override {
    check("ncclCommAbort", ncclCommAbort(communicator(handle)));
  }

  void group_start() const override { check("ncclGroupStart", ncclGroupStart()); }
  void group_end() const override { check("ncclGroupEnd", ncclGroupEnd()); }

  void send(Handle handle, const at::Tensor& from, int to, const Stream& stream) const override {
    check("ncclSend", ncclSend(from.const_data_ptr(), from.nbytes(), kBytes, to,
                               communicator(handle), native(stream)));
  }
  void receive(Handle handle, const at::Tensor& to, int from, const Stream& stream) const override {
    check("ncclRecv",
          ncclRecv(to.data_ptr(), to.nbytes(), kBytes, from, communicator(handle), native(stream)));
  }
  void all_gather(Handle handle, const at::Tensor& part, const at::Tensor& whole,
                  const Stream& stream) const override {
    check("ncclAllGather", ncclAllGather(part.const_data_ptr(), whole.data_ptr(), part.nbytes(),
                                         kBytes, communicator(handle), native(stream)));
  }

  void all_reduce(Handle handle, const at::Tensor& x, const Stream& stream) const override {
    check("ncclAllReduce",
          ncclAllReduce(x.const_data_ptr(), x.data_ptr(), count(x), type_of(x.scalar_type()),
                        ncclSum, communicator(handle), native(stream)));
  }
  void reduce_scatter(Handle handle, const at::Tensor& whole, const at::Tensor& part,
                      const Stream& stream) const override {
    check("ncclReduceScatter", ncclReduceScatter(whole.const_data_ptr(), part.data_ptr(),
                                                 count(part), type_of(part.scalar_type()), ncclSum,
                                                 communicator(handle), native(stream)));
  }
  void reduce(Handle handle, const at::Tensor& from, const at::Tensor& into, int root,
              const Stream& stream) const override {
    check("ncclReduce",
          ncclReduce(from.const_data_ptr(), into.defined() ? into.data_ptr() : nullptr, count(from),
                     type_of(from.scalar_type()), ncclSum, root, communicator(handle),
                     native(stream)));
  }
};

}  // namespace

const CollectiveLibrary& nccl_library() {
  static const Nccl library;
  return library;
}

}  // namespace strata
