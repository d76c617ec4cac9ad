/// Records the calls of NCCL instead of making them, and returns the configured results.
///
/// Threads  one at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tests/nccl/nccl.h"

namespace strata {

/// Members without meaning for the function stay empty.
struct NcclCall {
  std::string function;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  std::optional<ncclDataType_t> type = {};
  std::optional<ncclRedOp_t> operation = {};
  std::optional<int> rank = {};  ///< a peer, a root, or the caller's own rank
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  friend bool operator==(const NcclCall&, const NcclCall&) = default;
};

/// Prints names, for messages of tests.
void PrintTo(const NcclCall& call, std::ostream* out);

struct WrittenCalls {
  std::vector<NcclCall> calls;              ///< without calls that only query
  std::vector<int> bound;                   ///< arguments of cudaSetDevice()
  std::string refused;                      ///< this function returns ncclInvalidUsage
  ncclResult_t result = ncclSuccess;        ///< current state of the communicator
  std::optional<ncclConfig_t> config = {};  ///< of the last communicator
  std::string joined;                       ///< its unique id
  int size = 0;
};

/// The calls of the whole program; each test starts with an empty record.
WrittenCalls& written_calls();

}  // namespace strata
