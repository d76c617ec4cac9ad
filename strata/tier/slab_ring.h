/// Holds a few slabs of host memory that layers' bytes pass through on their way from and to a disk.
///
/// A slab is given out before it is free: whoever fills it does so behind its `busy` events. So a rank
/// hands out the slabs of a whole step at once and waits for none of them.
///
/// Threads  a rank's; what is submitted about a slab's bytes runs beside it.
/// Errors   InternalError: all slabs are leased. What an account throws.
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

struct Slab {
  at::Tensor bytes;
  int layer = -1;                     ///< whose bytes are in it, or will be; -1: nobody's
  int leases = 0;                     ///< kinds that somebody leases: it is not given to others
  std::vector<Completion> busy = {};  ///< what reads or writes it
  std::vector<Completion> complete =
      {};  ///< its weights are there: tenants that fetch them need no disk
  std::int64_t turn = 0;
};

class SlabRing {
 public:
  SlabRing() = default;
  /// `device`: what copies from them.
  SlabRing(int slabs, std::int64_t bytes, MemoryAccount* account, Device device = {});

  /// The slab that was given out longest ago and is not leased, for another layer. `busy` stays.
  Slab& take(int layer);
  Slab* of(int layer);  ///< null: it has none

 private:
  std::vector<Slab> slabs_;
  std::int64_t turn_ = 0;
};

}  // namespace strata
