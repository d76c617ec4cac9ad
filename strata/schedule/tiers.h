/// Decides where each kind of a layer's state lives between its uses: the one layout that programs,
/// ledger, stores and machines read.
///
/// A kind may live farther from the device than its optimizer states do only where they are off the
/// device, too: a layer is updated where its states are. ZeRO-Offload is (weights device, gradients
/// and states host); STRONGHOLD's working window has everything on the host; with a window of one,
/// layers are streamed one by one.
///
/// Source  Ren et al. 2021 (ZeRO-Offload); Rajbhandari et al. 2021 (ZeRO-Infinity); Sun et al. 2022
///         (STRONGHOLD); farthest next use: Belady 1966.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/schedule/dataflow.h"
#include "strata/schedule/zero.h"

namespace strata {

/// Nearest first.
enum class Tier : std::uint8_t { kDevice, kHost, kDisk };
const char* name_of(Tier tier);  ///< "device", "host", "disk"

/// Of one layer: where its weights, gradients and optimizer states live.
struct LayerTiers {
  Tier weights = Tier::kDevice;    ///< off the device: whole only from prefetch to release
  Tier gradients = Tier::kDevice;  ///< off the device: there from a backward to its offload
  Tier states = Tier::kDevice;
  /// Of a layer that runs again before its backward: the inputs that it keeps for that.
  Tier activations = Tier::kDevice;

  bool updates_on_host() const { return states != Tier::kDevice; }
  bool fetches_weights() const { return weights != Tier::kDevice; }
  /// The whole gradient leaves the device behind its last backward, its reduction or the end of its tie.
  bool offloads_gradients() const { return gradients != Tier::kDevice; }
  /// The weights that an update writes: fp32, or the 16-bit ones beside fp32 states.
  Tier updated_weights() const {
    if (states != Tier::kDisk) return states;
    return weights == Tier::kHost ? Tier::kHost : Tier::kDisk;
  }
  bool offloads_activations() const { return activations != Tier::kDevice; }
  friend bool operator==(const LayerTiers&, const LayerTiers&) = default;
};

/// Of a model's layers; by default all on the device.
struct TierLayout {
  std::vector<LayerTiers> layers = {};  ///< empty: everything on the device
  int window =
      2;  ///< layers whose weights are on the device at once, more where one action needs more
  /// A layer is updated as soon as its gradient is there: the update needs neither the norm nor the
  /// finiteness of the others' gradients.
  bool updates_at_once = false;
  /// Host buffers that the gradients of layers updated at once take in turn; 0: one for each layer.
  int gradient_buffers = 0;

  LayerTiers operator[](int layer) const { return layers.empty() ? LayerTiers{} : layers[layer]; }
  friend bool operator==(const TierLayout&, const TierLayout&) = default;
};

/// Whether a layer's update comes right behind the offload of its gradient, before the norm of all is known.
bool is_updated_at_once(const TierLayout& tiers, const LayerShards& shards, int layer,
                        const LayerSet& tied);

/// What becomes of a layout on a model's ranks: the one place that decides it. Layers without weights have
/// nothing to move. Weights and gradients that other ranks read or write in a tie stay on the device.
/// Where gradients are reduced, the reduction takes them to where they are updated, whatever is asked,
/// but for those of tied layers, which stay.
TierLayout tiers_on_ranks(TierLayout asked, const Dataflow& dataflow, const LayerSet& with_weights,
                          const std::vector<int>& rank_of_layer, const ShardLayout& shards);

}  // namespace strata
