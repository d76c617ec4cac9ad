/// Makes reads, writes and syncs of any other BlockIo fail on demand, so that tests of disk faults
/// take milliseconds.
///
///     ChunkFileOptions options;
///     options.block_io = faulty_block_io(make_block_io, [](const BlockRequest& request) {
///       return BlockFault{.error = request.op == BlockOp::kWrite ? ENOSPC : 0};
///     });
///
/// Threads  the source runs on the threads that use BlockIo: two per file, for reads and writes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "strata/disk/block_io.h"

namespace strata {

/// The fault of one request; none by default.
struct BlockFault {
  int error = 0;                       ///< the result is -error and nothing moves
  std::size_t at_most = SIZE_MAX;      ///< the result reports at most so many bytes
  std::optional<std::size_t> flip;     ///< flips this bit
  std::chrono::microseconds delay{0};  ///< delays the result
  int overtaken_by = 0;                ///< number of results returned before this one, if any
};

using BlockFaultSource = std::function<BlockFault(const BlockRequest& request)>;

BlockIoFactory faulty_block_io(BlockIoFactory inner, BlockFaultSource source);

}  // namespace strata
