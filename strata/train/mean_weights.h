/// Makes the mean of the weights of replicas that have weights of their own, which may take the
/// place of a replica's own weights: for an evaluation or a checkpoint.
///
/// The gradient buffers are free between steps: means are made there, in fp32 for any precision,
/// and own weights lie there while their mean has their place. With ZeRO, replicas are groups of
/// ranks that share one set of shards, and a rank averages its shard.
///
/// Threads  collective over `replicas`, apart from use_own() and own_weights().
/// Cost     a sum of fp32 gradients over the replicas; no memory but messages.
#pragma once

#include <ATen/core/Tensor.h>

#include "strata/comm/group.h"
#include "strata/optim/master_weights.h"
#include "strata/tier/store.h"

namespace strata {

class MeanWeights {
 public:
  /// `replicas`: the ranks that keep the same shards, one of each replica. Outlived by both.
  MeanWeights(LayerStore& store, Group& replicas) : store_(store), replicas_(replicas) {}

  Group& replicas() const { return replicas_; }

  void use_mean();
  void use_own();
  bool uses_mean() const { return uses_mean_; }

  /// The mean of a layer's weights, fp32 [shard], in its gradient buffer. `pin`: kPinned.
  at::Tensor average(const Pin& pin);
  /// This replica's own weights, wherever they are. `pin`: kPinned.
  MasterWeights own_weights(const Pin& pin) const;
  static constexpr StateKinds kPinned =
      StateKind::kWeightShard | StateKind::kOptimizer | StateKind::kGradients;

 private:
  void exchange_weights();

  LayerStore& store_;
  Group& replicas_;
  bool uses_mean_ = false;
};

/// Copies weights to fp32 memory, and back, in pieces: 16-bit weights are joined to fp32 ones in
/// memory of its own.
void copy_weights(const MasterWeights& from, const at::Tensor& to);
void copy_weights(const at::Tensor& from, const MasterWeights& to);

}  // namespace strata
