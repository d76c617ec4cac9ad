/// Pins kinds of one layer's state: while the pin lives, their bytes stay where the rank uses them.
///
/// Threads  the store's (store.h).
/// Errors   InternalError: a use that the pin is not for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "strata/optim/master_weights.h"
#include "strata/tier/layer_state.h"
#include "strata/tier/state_backend.h"

namespace strata {

class LayerStore;

class [[nodiscard]] Pin {
 public:
  Pin(Pin&& other) noexcept;
  Pin& operator=(Pin&&) = delete;
  ~Pin();

  int layer() const { return state_->layer; }
  const LayerLayout& layout() const { return *state_->layout; }
  const ShardPlacement& placement() const { return state_->placement; }
  /// In which replicas send gradients; empty: the numbers themselves.
  const std::optional<BlockCode>& gradient_code() const { return state_->gradient_code; }

  /// For kWeights: the autograd leaf of each weight.
  std::span<const at::Tensor> weights() const;
  at::Tensor flat_weights() const;  ///< [own_numel]

  /// For kWeightShard, or kWeights if they stay whole.
  at::Tensor weight_shard() const;

  /// For kGradients. A backward adds to a buffer of the whole layer, which is zero when it is
  /// opened; if only a shard stays, a reduction takes it out again.
  void open_gradients() const;
  at::Tensor take_gradients() const;                     ///< [total_numel]
  at::Tensor flat_gradients() const;                     ///< [total_numel], open
  at::Tensor weight_gradient(std::size_t weight) const;  ///< in the weight's shape, open
  void zero_gradients() const;                           ///< and moments, when a step begins
  /// The moments of the step's micro-batches on this rank, for a running mean (moments.h).
  at::Tensor moments(std::size_t weight) const;

  /// For kGradientShard: complete after the step's backwards and reductions.
  at::Tensor gradient_shard() const;  ///< [shard]

  /// Whether the shards live in host memory and the device is asynchronous, so that only copies
  /// move between the two, in stream order.
  bool shards_travel() const;
  /// Copies elements of kWeightShard or kGradientShard, from `begin` on, to `to` on the device,
  /// which waits for them.
  void bring_shard(StateKind kind, std::int64_t begin, const at::Tensor& to) const;
  /// Copies gradients `from` the device to elements of kGradientShard, from `begin` on.
  void offload_gradients(std::int64_t begin, const at::Tensor& from) const;

  /// For kOptimizer and kWeightShard: the fp32 weights that the update writes. The weight shard is
  /// all of them or their upper halves; otherwise the update rounds them to rounded().
  MasterWeights master() const;
  at::Tensor rounded() const;  ///< the weight shard; undefined if nothing is rounded
  std::vector<at::Tensor> slots() const;

 private:
  friend class LayerStore;
  Pin(LayerStore& store, LayerState& state, StateKinds kinds)
      : store_(&store), state_(&state), kinds_(kinds) {}
  void require(StateKind kind) const;

  LayerStore* store_;
  LayerState* state_;
  StateKinds kinds_;
  std::vector<Pin> owners_;  // of the tied weights that this layer uses
};

}  // namespace strata
