#include "tests/nccl/written_calls.h"

#include <cstring>
#include <ostream>
#include <utility>

namespace strata {

WrittenCalls& written_calls() {
  static WrittenCalls calls;
  return calls;
}

void PrintTo(const NcclCall& call, std::ostream* out) {
  *out << call.function << ' ' << call.count << " of type "
       << static_cast<int>(call.type.value_or(ncclUint8)) << " from " << call.from << " to "
       << call.to << ", rank " << call.rank.value_or(-1);
}

namespace {

// Returns like a non-blocking communicator: NCCL has accepted the call but not completed it.
ncclResult_t write(NcclCall call) {
  const bool refused = call.function == written_calls().refused;
  written_calls().calls.push_back(std::move(call));
  return refused ? ncclInvalidUsage : ncclInProgress;
}

}  // namespace
}  // namespace strata

using strata::write, strata::written_calls;

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal + 100, "meeting", 7);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  static char place;
  *made = reinterpret_cast<ncclComm_t>(&place);
  written_calls().config = *config;
  written_calls().joined.assign(id.internal, sizeof id.internal);
  written_calls().size = size;
  return write({.function = "ncclCommInitRankConfig", .rank = rank});
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* result) {
  *result = written_calls().result;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  return write({.function = "ncclCommFinalize", .communicator = communicator});
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  return write({.function = "ncclCommDestroy", .communicator = communicator});
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  return write({.function = "ncclCommAbort", .communicator = communicator});
}
const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
const char* ncclGetLastError(ncclComm_t) { return "the last"; }

ncclResult_t ncclGroupStart() { return write({.function = "ncclGroupStart"}); }
ncclResult_t ncclGroupEnd() { return write({.function = "ncclGroupEnd"}); }
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return write({.function = "ncclSend",
                .from = from,
                .count = count,
                .type = type,
                .rank = peer,
                .communicator = communicator,
                .stream = stream});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return write({.function = "ncclRecv",
                .to = to,
                .count = count,
                .type = type,
                .rank = peer,
                .communicator = communicator,
                .stream = stream});
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return write({.function = "ncclAllGather",
                .from = from,
                .to = to,
                .count = count,
                .type = type,
                .communicator = communicator,
                .stream = stream});
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return write({.function = "ncclAllReduce",
                .from = from,
                .to = to,
                .count = count,
                .type = type,
                .operation = operation,
                .communicator = communicator,
                .stream = stream});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator,
                               cudaStream_t stream) {
  return write({.function = "ncclReduceScatter",
                .from = from,
                .to = to,
                .count = count,
                .type = type,
                .operation = operation,
                .communicator = communicator,
                .stream = stream});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t communicator,
                        cudaStream_t stream) {
  return write({.function = "ncclReduce",
                .from = from,
                .to = to,
                .count = count,
                .type = type,
                .operation = operation,
                .rank = root,
                .communicator = communicator,
                .stream = stream});
}

// They differ in one bit.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device > 1) return cudaErrorInvalidDevice;
  std::memset(properties->uuid.bytes, 3, sizeof properties->uuid.bytes);
  if (device == 1) properties->uuid.bytes[7] = 2;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  written_calls().bound.push_back(device);
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "invalid device ordinal"; }
