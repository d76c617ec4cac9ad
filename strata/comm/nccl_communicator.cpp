// NCCL itself, not libtorch's ProcessGroupNCCL: that differs between releases, has threads of its own,
// and knows neither our rendezvous nor our watch. Communicators do not block: while a call is not
// complete we look whether another rank has failed, and abort then. Compiled; has never run.
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/comm/communicator.h"
#include "strata/comm/mailboxes.h"

namespace strata {
namespace {

[[noreturn]] void refuse(const char* call, const std::string& got) {
  throw SystemError({.operation = "comm.nccl",
                     .where = call,
                     .what = "NCCL failed",
                     .expected = "",
                     .got = got,
                     .fix = "run with NCCL_DEBUG=INFO, and strata doctor for the links"});
}

void check(const char* call, ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress)
    refuse(call, std::string(ncclGetErrorString(result)) + ": " + ncclGetLastError(nullptr));
}

void check(const char* call, cudaError_t result) {
  if (result != cudaSuccess) refuse(call, cudaGetErrorString(result));
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
      refuse("type_of", c10::toString(dtype));
  }
}

cudaStream_t native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

std::size_t count(const at::Tensor& x) { return static_cast<std::size_t>(x.numel()); }

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const ncclUniqueId& id, int rank, int size, Device device,
                   std::function<bool()> failed)
      : rank_(rank), device_(device), failed_(std::move(failed)) {
    bind();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check("ncclCommInitRankConfig",
          ncclCommInitRankConfig(&communicator_, size, id, rank, &config));
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override {
    // A rank that ends by an error must not wait for the others.
    if (failed_() || ncclCommFinalize(communicator_) == ncclInvalidUsage) {
      ncclCommAbort(communicator_);
      return;
    }
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && !failed_()) {
      if (ncclCommGetAsyncError(communicator_, &state) != ncclSuccess) break;
      std::this_thread::sleep_for(kPoll);
    }
    state == ncclSuccess ? ncclCommDestroy(communicator_) : ncclCommAbort(communicator_);
  }

  void exchange(std::span<const Part> sends, std::span<const Part> receives,
                const Stream& stream) override {
    group([&] {
      for (const Part& part : sends)
        check("ncclSend", ncclSend(part.tensor.const_data_ptr(), count(part.tensor),
                                   type_of(part.tensor.scalar_type()), part.rank, communicator_,
                                   native(stream)));
      for (const Part& part : receives)
        check("ncclRecv", ncclRecv(part.tensor.data_ptr(), count(part.tensor),
                                   type_of(part.tensor.scalar_type()), part.rank, communicator_,
                                   native(stream)));
    });
  }

  void all_gather(const at::Tensor& shard, const at::Tensor& flat, const Stream& stream) override {
    group([&] {
      check("ncclAllGather",
            ncclAllGather(shard.const_data_ptr(), flat.data_ptr(), count(shard),
                          type_of(shard.scalar_type()), communicator_, native(stream)));
    });
  }

  void all_reduce_sum(const at::Tensor& x, const Stream& stream) override {
    group([&] {
      check("ncclAllReduce",
            ncclAllReduce(x.const_data_ptr(), x.data_ptr(), count(x), type_of(x.scalar_type()),
                          ncclSum, communicator_, native(stream)));
    });
  }

  // Shards of one size go to ncclReduceScatter, which the network may do; others each to its rank.
  void reduce_scatter_sum(const at::Tensor& flat, std::span<const FlatRange> shards,
                          const at::Tensor& own, const Stream& stream) override {
    group([&] {
      const ncclDataType_t type = type_of(flat.scalar_type());
      if (are_even(shards)) {
        check("ncclReduceScatter",
              ncclReduceScatter(flat.const_data_ptr(), own.data_ptr(), count(own), type, ncclSum,
                                communicator_, native(stream)));
        return;
      }
      for (std::size_t rank = 0; rank < shards.size(); ++rank) {
        if (shards[rank].size() == 0) continue;
        const at::Tensor part = flat.narrow(0, shards[rank].begin, shards[rank].size());
        void* const into = static_cast<int>(rank) == rank_ ? own.data_ptr() : nullptr;
        check("ncclReduce", ncclReduce(part.const_data_ptr(), into, count(part), type, ncclSum,
                                       static_cast<int>(rank), communicator_, native(stream)));
      }
    });
  }

 private:
  static constexpr std::chrono::microseconds kPoll{50};

  void bind() const { check("cudaSetDevice", cudaSetDevice(device_.index)); }

  // Of a communicator that does not block, everything returns before it is done.
  void await(const char* call) const {
    ncclResult_t state = ncclSuccess;
    while (true) {
      check(call, ncclCommGetAsyncError(communicator_, &state));
      check(call, state);
      if (state != ncclInProgress) return;
      if (failed_()) throw Cancelled();
      std::this_thread::sleep_for(kPoll);
    }
  }

  template <typename Calls>
  void group(const Calls& calls) {
    if (!std::exchange(joined_, true)) await("ncclCommInitRankConfig");
    check("ncclGroupStart", ncclGroupStart());
    calls();
    check("ncclGroupEnd", ncclGroupEnd());
    await("ncclGroupEnd");
  }

  ncclComm_t communicator_ = nullptr;
  int rank_;
  Device device_;
  std::function<bool()> failed_;
  bool joined_ = false;
};

class Nccl final : public CommunicatorBackend {
 public:
  bool present() const override { return true; }

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

  std::unique_ptr<Communicator> join(const std::string& unique_id, int rank, int size,
                                     Device device, std::function<bool()> failed) const override {
    ncclUniqueId id;
    STRATA_CHECK_EQ(unique_id.size(), sizeof id.internal, "comm.nccl");
    std::memcpy(id.internal, unique_id.data(), sizeof id.internal);
    return std::make_unique<NcclCommunicator>(id, rank, size, device, std::move(failed));
  }
};

}  // namespace

const CommunicatorBackend& nccl_backend() {
  static const Nccl backend;
  return backend;
}

}  // namespace strata
