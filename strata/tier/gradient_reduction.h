/// Adds a layer's gradients over the replicas of its stage, in rank order.
///
/// start() exports this rank's gradients to the other replicas and returns. sum() computes the sum
/// of this replica's part, and sends it to the replicas that keep the same shard, whose parts
/// finish() gathers; inside a shard group sum() computes the group's sum of the rank's shard. Both
/// go in the layer's code, if it has one. With sequence parallelism, gradients of a part of the
/// sequence are first added over the tensor-parallel ranks.
///
/// Threads  collective over the dp axis (and the tp axis): start() and finish() for the same layers
///          in the same order.
/// Errors   Cancelled when another rank failed.
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "strata/comm/coded_collectives.h"
#include "strata/comm/collectives.h"
#include "strata/comm/group.h"
#include "strata/layout/zero.h"
#include "strata/tier/store.h"

namespace strata {

/// Adds the layer's gradients that each tensor-parallel rank has for a part of the sequence.
void add_partial_gradients(Group& tp, const Pin& pin);

/// The ranks whose gradients are added.
enum class AddedOver : std::uint8_t {
  kReplicas,    ///< all that hold the same weights
  kShardGroup,  ///< those that share one set of shards: each such group has a sum of its own
};

class GradientReduction {
 public:
  /// `pin` is for the layer's gradients and lives until the reduction is destroyed. If only a shard
  /// stays (ShardPlacement::whole_gradients is false), the bytes leave the buffer here and live
  /// until the last peer has read them.
  static GradientReduction start(MeshGroups& groups, Pin pin, const LayerCuts& cuts,
                                 bool sequence_parallel, AddedOver over = AddedOver::kReplicas);

  /// Whether sum() would probably not wait.
  bool has_arrived() const;

  /// `shard` is for the layer's gradient shard (LayerStore::acquire_to_copy()). `first`, `last`:
  /// this is the first or last reduction of the layer in this step. Ranks may call it for the
  /// layers that they have started in different orders, except with a communicator.
  void sum(Pin shard, bool first, bool last);
  bool is_summed() const { return shard_.has_value(); }

  /// After sum(). Returns the pin that sum() got.
  Pin finish();

 private:
  GradientReduction(MeshGroups& groups, Pin pin, const LayerCuts& cuts, AddedOver over)
      : groups_(&groups),
        pin_(std::move(pin)),
        cuts_(&cuts),
        over_(over),
        gather_tag_(groups.replica.next_collective()) {}

  bool in_group() const { return over_ == AddedOver::kShardGroup; }

  Shards parts_of_shard() const;

  MeshGroups* groups_;
  Pin pin_;
  const LayerCuts* cuts_;
  AddedOver over_;
  MessageTag gather_tag_;
  std::variant<ReduceScatter, CodedSum> sum_;
  std::variant<std::monostate, AllGather, CodedGather> gather_;  // of the sums
  std::optional<Pin> shard_;                                     // from sum() to finish()
  at::Tensor gradients_;                                         // of the shard
  FlatRange summed_{};                                           // relative to it
};

}  // namespace strata
