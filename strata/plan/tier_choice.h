/// Chooses where each kind of the layers' state lives.
///
/// What is left open (`auto`) stays on the device while the plan fits there. Else the states and
/// gradients of all layers go to the host, and only then their weights, of which as many layers as
/// fit are on the device at once. What the host does not hold goes to the disk, if there is one: first the
/// states, then the weights, too. What becomes of the choice layer by layer is the step's business
/// (schedule/tiers.h).
///
/// Errors  UserError `[plan.memory]` at the place that `where` gives for the field: settings that
///         contradict each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/plan/mesh_check.h"
#include "strata/plan/plan_options.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/tiers.h"

namespace strata {

/// Where the layers' state lives; LayerTiers of a layer that can have all of it.
struct TierPlacement {
  LayerTiers tiers = {};
  int window = 0;  ///< layers whose weights are on the device at once; 0: what passes take
  int gradient_buffers = 0;  ///< TierLayout::gradient_buffers
  /// Layers whose activations leave, where `tiers` says that they do; empty: all that run again.
  LayerSet offloaded = {};
  bool leaves_device() const { return tiers.updates_on_host() || tiers.offloads_activations(); }
  friend bool operator==(const TierPlacement&, const TierPlacement&) = default;
};

/// "gradients and states on the host", "gradients on the host, weights and states on the disk"; "" if nothing
/// leaves the device.
std::string placement_text(const TierPlacement& placement);

void check_memory(const MemoryOptions& memory, const MeshOptions& mesh,
                  const PlaceOf& place_of = {});

/// What the options leave open, the fewest moves first. A window that is left open is 0.
std::vector<TierPlacement> tier_placements(const MemoryOptions& memory, bool trains);

/// The same for all layers, as a step is asked for it. `updates_at_once`: an update needs nothing of other
/// layers.
TierLayout tier_layout(const TierPlacement& placement, int num_layers, bool updates_at_once);

/// The layers of the rank that has most of those whose weights live off the device.
int most_fetched(const TierLayout& layout, const std::vector<int>& rank_of_layer);

/// By bisection, of 1 to `most`: the largest window of which `fits` says so; 0: not even one.
int largest_window(int most, const std::function<bool(int window)>& fits);

}  // namespace strata
