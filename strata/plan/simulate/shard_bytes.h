/// Counts the bytes that a rank holds of a layer whose weights, gradients and states its replicas
/// shard (layout/zero.h decides which), some of which live on the host (layout/tiers.h).
///
/// Shards are cut in whole blocks (base/flat_range.h). The bytes are those of the fullest rank,
/// which has the rounded-up shard of every layer. What is updated off the device is held for the
/// whole step, including a copy of weights that stay on the device.
///
/// Units   bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/disk/staging.h"
#include "strata/layout/costs.h"
#include "strata/layout/tiers.h"
#include "strata/layout/zero.h"
#include "strata/schedule/action.h"

namespace strata {

/// Bytes off the device for the whole step.
struct HostBytes {
  std::int64_t weights = 0;      ///< read by a fetch
  std::int64_t gradients = 0;    ///< written by an offload; fp32
  std::int64_t states = 0;       ///< includes fp32 masters of 16-bit weights
  std::int64_t activations = 0;  ///< the simultaneous maximum; per rank, not per layer
  std::int64_t staging = 0;      ///< per rank: staging buffers between disk and device
  std::int64_t pages = 0;        ///< per rank: keys and values of served sequences
  std::int64_t total() const {
    return weights + gradients + states + activations + staging + pages;
  }
  HostBytes& operator+=(const HostBytes& other) {
    weights += other.weights;
    gradients += other.gradients;
    states += other.states;
    staging += other.staging;
    activations += other.activations;
    pages += other.pages;
    return *this;
  }
  friend bool operator==(const HostBytes&, const HostBytes&) = default;
};

/// The bytes of one layer on one rank.
struct ShardBytes {
  LayerShards shards;
  std::int64_t weights = 0;    ///< for the whole step
  std::int64_t gradients = 0;  ///< for the whole step; includes buffers of tied uses
  std::int64_t states = 0;     ///< for the whole step
  std::int64_t signs = 0;      ///< messages during the update
  /// the whole weights, from prefetch to release; 0: always on the device
  std::int64_t fetched_weights = 0;
  /// the layer's own whole gradient, which a reduction exchanges
  std::int64_t own_gradients = 0;
  /// the whole buffer, from the first backward to the end of its reduction or offload; 0: part of
  /// `gradients`
  std::int64_t opened_gradients = 0;
  /// gradients, and sums of them, received from others from a reduction's start to its end
  std::int64_t received = 0;
  /// the code of the own gradient, from a reduction's start until all have read it, and of this
  /// rank's part of the sum, if other ranks gather that; 0: peers read the gradient itself
  std::int64_t gradient_code = 0, sum_code = 0;
  /// the code of the whole weights; 0: peers read the weights themselves
  std::int64_t weight_code = 0;
  /// what a fetch copies to where peers read it: this rank's part of gathered weights that live off
  /// the device, or its code, and with it the codes that are received
  std::int64_t gathered_part = 0;
  HostBytes updated = {};  ///< state off the device, on host or disk
  HostBytes host = {};     ///< the part of `updated` on the host
  LayerOnDisk disk = {};   ///< the part of `updated` on disk
};

/// `reads_in_place`: a reduction reads the others' gradients in place; false: it receives them.
ShardBytes shard_bytes(const LayerCost& layer, const LayerShards& shards, const ShardLayout& layout,
                       int weight_element_bytes, bool reads_in_place, const LayerTiers& tiers = {});
std::vector<ShardBytes> shard_bytes(const CostTable& costs, const ShardLayout& layout,
                                    bool reads_in_place, const TierLayout& tiers = {});

/// The bytes of a message for a tied weight on another rank: the weight, or its gradient.
std::int64_t tied_bytes(const LayerCost& layer, Op op);

/// Replaces the whole buffers of a model with what a rank's device holds for the whole step.
CostTable resident_costs(CostTable costs, const ShardLayout& layout, const TierLayout& tiers = {});

/// The layers that own weights.
LayerSet layers_with_weights(const CostTable& costs);

}  // namespace strata
