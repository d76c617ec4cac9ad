/// Adds a layer's gradients over the replicas of its stage, in rank order.
///
/// start() exports this rank's gradients to the others and returns; finish() makes the sum of this
/// replica's part and collects the rest of its shard from the replicas that keep the same shard.
/// With sequence parallelism, gradients that come from a part of the sequence are first added over
/// the tensor-parallel ranks.
///
/// Threads  collective over the dp line (and the tp line): the same layers in the same order.
/// Errors   Cancelled when another rank failed.
#pragma once

#include "strata/comm/collectives.h"
#include "strata/comm/group.h"
#include "strata/layout/zero.h"
#include "strata/tier/store.h"

namespace strata {

class GradientReduction {
 public:
  /// `pin`: of the layer's gradients; kept until the reduction goes. Where only a shard stays (ShardPlacement::whole_gradients false), the
  /// buffer's bytes leave it here and live until the last peer has read them.
  static GradientReduction start(MeshGroups& groups, Pin pin, const LayerCuts& cuts,
                                 bool sequence_parallel);

  /// `pin`: of the layer's gradient shard, to be copied (LayerStore::acquire_to_copy()).
  /// `first`, `last`: no other reduction of this layer goes before, or follows, in this step.
  void finish(const Pin& pin, bool first, bool last);

 private:
  GradientReduction(MeshGroups& groups, Pin pin, const LayerCuts& cuts)
      : groups_(&groups), pin_(std::move(pin)), cuts_(&cuts) {}

  void gather_parts(const at::Tensor& own, const at::Tensor& gradients);

  MeshGroups* groups_;
  Pin pin_;
  const LayerCuts* cuts_;
  ReduceScatter sum_;
};

}  // namespace strata
