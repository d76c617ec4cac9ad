/// Chooses where each kind of the layers' state lives.
///
/// What is left open (`auto`) stays on the device if the plan fits there. Otherwise the states and
/// gradients of all layers move to the host, and only then their weights, of which as many layers
/// as fit are on the device at once. What the host cannot hold moves to the disk, if there is one:
/// first the states, then also the weights, then also the gradients. layout/tiers.h adapts the
/// choice layer by layer.
///
/// Errors  UserError `[plan.memory]` at the place that `where` returns for the field: settings that
///         contradict each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/layout/dataflow.h"
#include "strata/layout/tiers.h"
#include "strata/plan/plan_options.h"
#include "strata/plan/search/mesh_check.h"

namespace strata {

/// Where the layers' state lives; the LayerTiers apply to a layer that supports all of them.
struct TierPlacement {
  LayerTiers tiers = {};
  /// layers whose weights are on the device at once; 0: the default of the passes
  int window = 0;
  int gradient_buffers = 0;  ///< TierLayout::gradient_buffers
  /// Layers whose activations are offloaded, if `tiers` offloads any; empty: all recomputed layers.
  LayerSet offloaded = {};
  bool leaves_device() const { return tiers.updates_on_host() || tiers.offloads_activations(); }
  friend bool operator==(const TierPlacement&, const TierPlacement&) = default;
};

/// "gradients and states on the host", "gradients on the host, weights and states on the disk"; ""
/// if nothing leaves the device.
std::string placement_text(const TierPlacement& placement);

/// The placement that layers have: gradients are on the host if updates consume all of them at
/// once.
TierPlacement placement_of_layers(TierPlacement requested, const TierLayout& layers);

void check_memory(const MemoryOptions& memory, const MeshOptions& mesh,
                  const PlaceOf& place_of = {});

/// What the options leave open, fewest moves first. An open window is 0.
std::vector<TierPlacement> tier_placements(const MemoryOptions& memory, bool trains);

/// Applies one placement to all layers, as a request. `updates_at_once`: an update needs nothing of
/// other layers.
TierLayout tier_layout(const TierPlacement& placement, int num_layers, bool updates_at_once);

/// The number of layers on the rank that has most of those whose weights live off the device.
int most_fetched(const TierLayout& layout, const std::vector<int>& rank_of_layer);

/// Bisects 1 to `most`: the largest window for which `fits` returns true; 0: none.
int largest_window(int most, const std::function<bool(int window)>& fits);

}  // namespace strata
