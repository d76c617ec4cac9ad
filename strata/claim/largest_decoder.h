/// Finds the deepest decoder that one rank of a machine trains, with its state on device, host or
/// disk (plan/search/tier_depth.h).
///
/// Cost  tens of milliseconds.
#pragma once

#include <string>
#include <vector>

#include "strata/claim/decoder_costs.h"
#include "strata/plan/search/tier_depth.h"

namespace strata {

struct LargestDecoderRequest {
  DecoderShape shape;  ///< `layers` are ignored
  std::int64_t samples = 1;
  int element_bytes = 2;
  MachineProfile machine;
  std::string convention = "mixed";
  /// A layer is updated as soon as its gradient is complete, which clipping rules out.
  bool updates_at_once = false;
  std::int64_t disk_bytes = 0;  ///< 0: no disk
};

/// On the device; with gradients and states on the host; with everything there; with a disk, with
/// everything on it.
std::vector<TierDepth> largest_decoders(const LargestDecoderRequest& request);

/// The tiers of the list above.
enum class Placement : std::uint8_t { kDevice, kOffload, kWindow, kDisk };
const TierDepth& depth_of(const std::vector<TierDepth>& depths, Placement placement);

/// A step of `layers` blocks with this placement. `window`: layers whose weights are on the device
/// at once, where they live on the host. kDisk is not simulated.
double decoder_step_seconds(const LargestDecoderRequest& request, int layers, Placement placement,
                            int window = 0);

}  // namespace strata
