/// Chooses the primitives for a kind of device: Strata's own kernels, or ATen.
///
/// A process computes with one set of primitives for each kind of device. primitives() and the
/// optimizer's step_primitives() look up their implementation by kind and choice in a table each.
///
/// Threads  choose before ranks start; any thread reads.
#pragma once

#include <cstdint>

#include "strata/device/device.h"

namespace strata {

/// kOwn: Strata's kernels. kAten: only libtorch's operators. kAuto: own on a CPU; ATen on CUDA,
/// where no own kernel has been measured yet.
enum class PrimitivesChoice : std::uint8_t { kAuto, kOwn, kAten };
const char* name_of(PrimitivesChoice choice);  ///< "auto", "own", "aten"

void choose_primitives(DeviceKind kind, PrimitivesChoice choice);

/// Returns the last choice, by default kAuto, resolved: kOwn or kAten.
PrimitivesChoice chosen_primitives(DeviceKind kind);

}  // namespace strata
