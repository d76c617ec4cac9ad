/// Pins kinds of one layer's state on the device: while a pin lives, the bytes cannot leave.
///
/// Threads  as the store that gives it (store.h).
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

  /// kWeights: per weight, the autograd leaf; all of the layer's own weights; whether tied ones
  /// are another layer's.
  std::span<const at::Tensor> weights() const;
  at::Tensor flat_weights() const;  ///< [own_numel]

  /// kWeightShard (kWeights, where they stay whole).
  at::Tensor weight_shard() const;

  /// kGradients. Backward adds to a buffer of the whole layer, zero when it is opened; where only a
  /// shard stays, a reduction takes it out again.
  void open_gradients() const;
  at::Tensor take_gradients() const;                     ///< [total_numel]
  at::Tensor flat_gradients() const;                     ///< [total_numel], open
  at::Tensor weight_gradient(std::size_t weight) const;  ///< in the weight's shape, open
  void zero_gradients() const;                           ///< moments, too; a step begins
  /// What the step's micro-batches have of a running mean's columns on this rank (moments.h).
  at::Tensor moments(std::size_t weight) const;

  /// kGradientShard. The whole step's, where backwards and replicas are done with it.
  at::Tensor gradient_shard() const;  ///< [shard]

  /// Whether the shards live in host memory beside a device that works behind the rank's back, so that only
  /// copies of them go between the two, behind events: a part of kWeightShard or kGradientShard from element
  /// `begin` on comes to `to`, for which the device waits; or gradients `from` the device become it.
  bool shards_travel() const;
  void bring_shard(StateKind kind, std::int64_t begin, const at::Tensor& to) const;
  void offload_gradients(std::int64_t begin, const at::Tensor& from) const;

  /// kOptimizer and kWeightShard. What the update writes: fp32 weights, of which the weight shard is all or
  /// a half; where it is neither, it becomes the rounded ones.
  MasterWeights master() const;
  at::Tensor rounded() const;  ///< undefined: none
  std::vector<at::Tensor> slots() const;

 private:
  friend class LayerStore;
  Pin(LayerStore& store, LayerState& state, StateKinds kinds)
      : store_(&store), state_(&state), kinds_(kinds) {}
  void require(StateKind kind) const;

  LayerStore* store_;
  LayerState* state_;
  StateKinds kinds_;
  std::vector<Pin> owners_;  // of the tied weights that this layer only uses
};

}  // namespace strata
