/// Holds the staging buffers in host memory through which layers' bytes pass from and to a disk.
///
/// take() may return a buffer that is still in use: the caller fills it after its `busy` work. So a
/// rank takes the buffers of a whole step at once and waits for none of them.
///
/// Threads  a rank's; the work on a buffer's bytes runs in parallel with it.
/// Errors   InternalError: all buffers are pinned. The errors of an account that is charged.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/device/device.h"

namespace strata {

class MemoryAccount;

/// Zeroed memory of whole pages, aligned for direct disk access. The account is charged while it
/// lives; null: it is not accounted for.
at::Tensor aligned_bytes(std::int64_t bytes, MemoryAccount* account);

struct StagingBuffer {
  at::Tensor bytes;
  int layer = -1;                     ///< the layer whose bytes it holds or will hold; -1: none
  int pins = 0;                       ///< pinned kinds in it; above 0 it keeps its layer
  std::vector<Completion> busy = {};  ///< work that reads or writes it
  /// the layer's weights are in it once these have ended; empty: they will not be
  std::vector<Completion> complete = {};
  std::int64_t turn = 0;
};

class StagingRing {
 public:
  StagingRing() = default;
  /// `bytes`: of each buffer. `device`: the device that copies from them.
  StagingRing(int buffers, std::int64_t bytes, MemoryAccount* account, Device device = {});

  /// Assigns the unpinned buffer that was taken first to a layer. Its `busy` stays.
  StagingBuffer& take(int layer);
  StagingBuffer* of(int layer);  ///< the layer's buffer; null: it has none

 private:
  std::vector<StagingBuffer> buffers_;
  std::int64_t turn_ = 0;
};

}  // namespace strata
