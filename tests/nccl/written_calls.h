/// Writes down the calls of NCCL instead of making them, and answers as it is told.
///
/// Threads  one at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tests/nccl/nccl.h"

namespace strata {

/// What is none of the function's stays empty.
struct NcclCall {
  std::string function;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  std::optional<ncclDataType_t> type = {};
  std::optional<ncclRedOp_t> operation = {};
  std::optional<int> rank = {};  ///< a peer, a root, or its own
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  friend bool operator==(const NcclCall&, const NcclCall&) = default;
};

/// With names, for messages of tests.
void PrintTo(const NcclCall& call, std::ostream* out);

struct WrittenCalls {
  std::vector<NcclCall> calls;              ///< but those that only ask
  std::vector<int> bound;                   ///< devices that cudaSetDevice() was called with
  std::string refused;                      ///< this function answers ncclInvalidUsage
  ncclResult_t result = ncclSuccess;        ///< of the communicator, as of now
  std::optional<ncclConfig_t> config = {};  ///< of the last that was made
  std::string joined;                       ///< its unique id
  int size = 0;
};

/// The same for all of a program; a test begins with new ones.
WrittenCalls& written_calls();

}  // namespace strata
