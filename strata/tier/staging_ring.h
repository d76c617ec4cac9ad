/// Holds a few staging buffers of host memory that layers' bytes pass through on their way from and to a disk.
///
/// A staging buffer is given out before it is free: whoever fills it does so behind its `busy` events. So a rank
/// hands out the staging buffers of a whole step at once and waits for none of them.
///
/// Threads  a rank's; what is submitted about a staging buffer's bytes runs beside it.
/// Errors   InternalError: all staging buffers are pinned. What an account throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/device/device.h"

namespace strata {

class MemoryAccount;

/// Whole pages, aligned as disks want them, zero; charged to the account (null: nobody's) as long as
/// they live.
at::Tensor aligned_bytes(std::int64_t bytes, MemoryAccount* account);

struct StagingBuffer {
  at::Tensor bytes;
  int layer = -1;                     ///< whose bytes are in it, or will be; -1: nobody's
  int pins = 0;                       ///< kinds that somebody pins: it is not given to others
  std::vector<Completion> busy = {};  ///< what reads or writes it
  std::vector<Completion> complete =
      {};  ///< its weights are there: tenants that fetch them need no disk
  std::int64_t turn = 0;
};

class StagingRing {
 public:
  StagingRing() = default;
  /// `device`: what copies from them.
  StagingRing(int buffers, std::int64_t bytes, MemoryAccount* account, Device device = {});

  /// The staging buffer that was given out longest ago and is not pinned, for another layer. `busy` stays.
  StagingBuffer& take(int layer);
  StagingBuffer* of(int layer);  ///< null: it has none

 private:
  std::vector<StagingBuffer> buffers_;
  std::int64_t turn_ = 0;
};

}  // namespace strata
