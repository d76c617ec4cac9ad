/// Measures the rates of memory tiers: the host's memory and optimizer, the link to the device, and
/// a disk. `strata doctor` saves them, plans read them.
///
/// Units  bytes per second; reads and writes are added if a kernel does both.
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

/// Measures copy, triad, AdamW on all cores and on one, the link in both directions and its
/// latency; with a folder, also a temporary file in it, past the page cache. Returns the best of a
/// few rounds, because other programs only make the machine slower. Leaves the number of threads
/// unchanged.
/// Errors  UserError: a folder that does not exist, is full, read-only or in memory. SystemError: a
///         disk that fails.
MachineProfile measure_machine(const MachineRatesOptions& options);

}  // namespace strata
