/// Decides where each kind of a layer's state lives between its uses. Programs, ledger, stores and
/// machines all read this one layout.
///
/// A kind may live farther from the device than the optimizer states only if those are off the
/// device, too: a layer is updated where its states are. Gradients live on a disk only if the
/// states do. ZeRO-Offload keeps weights on the device, gradients and states on the host.
/// STRONGHOLD's working window keeps everything on the host; with a window of one, layers are
/// streamed one by one.
///
/// Source  Ren et al. 2021 (ZeRO-Offload); Rajbhandari et al. 2021 (ZeRO-Infinity); Sun et al. 2022
///         (STRONGHOLD); farthest next use: Belady 1966.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/layout/dataflow.h"
#include "strata/layout/zero.h"

namespace strata {

/// Nearest first.
enum class Tier : std::uint8_t { kDevice, kHost, kDisk };
const char* name_of(Tier tier);  ///< "device", "host", "disk"

/// The tiers of one layer's weights, gradients, optimizer states and saved inputs.
struct LayerTiers {
  Tier weights = Tier::kDevice;  ///< off the device: on it only from prefetch to release
  /// off the device: on it only from a backward to its offload
  Tier gradients = Tier::kDevice;
  Tier states = Tier::kDevice;
  /// The inputs that a recomputed layer saves for its recompute.
  Tier activations = Tier::kDevice;

  bool updates_on_host() const { return states != Tier::kDevice; }
  bool fetches_weights() const { return weights != Tier::kDevice; }
  /// Whether the whole gradient is moved off the device after its last backward, its reduction or
  /// the sum of its tie.
  bool offloads_gradients() const { return gradients != Tier::kDevice; }
  /// The tier of the weights that an update writes: fp32 weights, or the 16-bit copies of fp32
  /// states.
  Tier updated_weights() const {
    if (states != Tier::kDisk) return states;
    return weights == Tier::kHost ? Tier::kHost : Tier::kDisk;
  }
  bool offloads_activations() const { return activations != Tier::kDevice; }
  friend bool operator==(const LayerTiers&, const LayerTiers&) = default;
};

/// The tiers of all layers of a model; by default all on the device.
struct TierLayout {
  std::vector<LayerTiers> layers = {};  ///< empty: everything on the device
  int window =
      2;  ///< layers whose weights are on the device at once; more if one action needs more
  /// A layer is updated as soon as its gradient is complete. The update then uses neither the
  /// global norm nor the check that all gradients are finite.
  bool updates_at_once = false;
  /// Host buffers that the gradients of layers updated at once share in turn; 0: one per layer.
  int gradient_buffers = 0;

  LayerTiers operator[](int layer) const { return layers.empty() ? LayerTiers{} : layers[layer]; }
  friend bool operator==(const TierLayout&, const TierLayout&) = default;
};

/// Whether a layer's update directly follows the offload of its gradient, before the global norm is
/// known.
bool is_updated_at_once(const TierLayout& tiers, const LayerShards& shards, int layer,
                        const LayerSet& tied);

/// Adapts a requested layout to a model's ranks; no other code does. Layers without weights have
/// nothing to move. Weights and gradients that other ranks read or write through a tie stay on the
/// device. Where gradients are reduced, the reduction moves them to where they are updated,
/// whatever was requested, except those of tied layers, which stay. Gradients that an update
/// consumes at once, from buffers of the host that layers share, do not go to a disk.
TierLayout tiers_on_ranks(TierLayout requested, const Dataflow& dataflow,
                          const LayerSet& with_weights, const std::vector<int>& rank_of_layer,
                          const ShardLayout& shards);

}  // namespace strata
