/// Counts the bytes that a rank holds of a layer whose weights, gradients and states its replicas
/// shard (schedule/zero.h says which) and of which some live on the host (schedule/tiers.h).
///
/// Shards are cut in whole blocks (base/flat_range.h); the bytes are those of the fullest rank, which
/// has the rounded-up shard of every layer. What is updated off the device is there for the whole step, a
/// copy of weights that stay on the device included.
///
/// Units   bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/disk/staging.h"
#include "strata/schedule/action.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/tiers.h"
#include "strata/schedule/zero.h"

namespace strata {

/// For the whole step, off the device.
struct HostBytes {
  std::int64_t weights = 0;      ///< what a fetch brings
  std::int64_t gradients = 0;    ///< what an offload takes; fp32
  std::int64_t states = 0;       ///< fp32 weights beside 16-bit ones included
  std::int64_t activations = 0;  ///< at most at once; of the rank, not a layer
  std::int64_t staging = 0;      ///< the same: what passes through between disk and device
  std::int64_t total() const { return weights + gradients + states + activations + staging; }
  HostBytes& operator+=(const HostBytes& other) {
    weights += other.weights;
    gradients += other.gradients;
    states += other.states;
    staging += other.staging;
    activations += other.activations;
    return *this;
  }
  friend bool operator==(const HostBytes&, const HostBytes&) = default;
};

/// Of one layer on one rank.
struct ShardBytes {
  LayerShards shards;
  std::int64_t weights = 0;           ///< for the whole step
  std::int64_t gradients = 0;         ///< for the whole step; buffers of tied uses included
  std::int64_t states = 0;            ///< for the whole step
  std::int64_t fetched_weights = 0;   ///< the whole ones, from prefetch to release; 0: always here
  std::int64_t own_gradients = 0;     ///< its own, whole; what a reduction moves
  std::int64_t opened_gradients = 0;  ///< the whole buffer, from the first backward to the end of
                                      ///< its reduction or offload; 0: `gradients` are it
  std::int64_t received = 0;          ///< of others' gradients, from a reduction's start to its end
  std::int64_t gathered_part =
      0;                   ///< its own part of weights that live off the device and that replicas
                           ///< gather: a fetch brings it to where they read it
  HostBytes updated = {};  ///< off the device, wherever it lives
  HostBytes host = {};     ///< of that, on the host
  LayerOnDisk disk = {};   ///< of that, on disk
};

/// `reads_in_place`: a reduction reads the others' gradients where they are, else it receives them.
ShardBytes shard_bytes(const LayerCost& layer, const LayerShards& shards, const ShardLayout& layout,
                       int weight_element_bytes, bool reads_in_place, const LayerTiers& tiers = {});
std::vector<ShardBytes> shard_bytes(const CostTable& costs, const ShardLayout& layout,
                                    bool reads_in_place, const TierLayout& tiers = {});

/// What a message to a layer with a tied weight of another rank carries: the weight, or back its gradient.
std::int64_t tied_bytes(const LayerCost& layer, Op op);

/// The same model with what a rank's device holds for the whole step in place of the whole buffers.
CostTable resident_costs(CostTable costs, const ShardLayout& layout, const TierLayout& tiers = {});

/// The layers that own weights.
LayerSet layers_with_weights(const CostTable& costs);

}  // namespace strata
