/// Measures what memory tiers live on: the host's memory, its optimizer, the link to the device and
/// a disk. `strata doctor` saves it, plans read it.
///
/// Units  bytes a second; read and written together where a kernel does both.
/// Cost   some seconds; memory and disk space of `MachineRatesOptions`.
#pragma once

#include <cstdint>
#include <string>

#include "strata/device/device.h"
#include "strata/plan/machine_profile.h"

namespace strata {

struct MachineRatesOptions {
  int cores = 1;
  Device device = {};  ///< at the other end of the link
  /// size of all arrays of a kernel together
  std::int64_t memory_bytes = std::int64_t{768} << 20;
  std::int64_t link_bytes = std::int64_t{256} << 20;
  std::int64_t disk_bytes = std::int64_t{256} << 20;
  std::string disk_folder;  ///< empty: no disk
};

/// Copy, triad, AdamW on all cores and on one, the link each way and its latency; with a folder, a
/// file in it, past the page cache, which is removed again. The best of a few rounds: what the
/// machine does when nobody disturbs it. Leaves the number of threads as it was.
/// Errors  UserError: a folder that is none, full, read-only or in memory. SystemError: a disk that
///         fails.
MachineProfile measure_machine(const MachineRatesOptions& options);

}  // namespace strata
