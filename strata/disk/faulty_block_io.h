/// Breaks reads, writes and syncs as it is told, over any other form of BlockIo: tests of a disk's
/// faults take milliseconds with it.
///
///     ChunkFileOptions options;
///     options.block_io = faulty_block_io(make_block_io, [](const BlockRequest& request) {
///       return BlockFault{.error = request.op == BlockOp::kWrite ? ENOSPC : 0};
///     });
///
/// Threads  the source is asked on the threads that use the seam: two for a file, reads and writes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "strata/disk/block_io.h"

namespace strata {

/// What becomes of one request; by default what was asked for.
struct BlockFault {
  int error = 0;                       ///< the result is -error and nothing moves
  std::size_t at_most = SIZE_MAX;      ///< no more bytes move, or so it says
  std::optional<std::size_t> flip;     ///< this bit of the bytes arrives as another
  std::chrono::microseconds delay{0};  ///< before the result is handed out
  int overtaken_by = 0;                ///< results that are handed out first, if there are any
};

using BlockFaultSource = std::function<BlockFault(const BlockRequest& request)>;

BlockIoFactory faulty_block_io(BlockIoFactory inner, BlockFaultSource source);

}  // namespace strata
