/// Holds all bytes that one layer has on a rank, as backends move them.
///
/// Every buffer is one storage object for life: bytes come and go under it, its views (autograd
/// leaves, gradients, saved tensors) stay valid. Nothing but the store, its pins and its backends
/// touches one.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "strata/base/flat_range.h"
#include "strata/nn/graph/layout.h"
#include "strata/schedule/step_plan.h"
#include "strata/tier/flat_buffer.h"
#include "strata/tier/state_backend.h"

namespace strata {

class MemoryAccount;

/// Which part of a layer's state this rank keeps. By default weights, gradients and no states of an
/// optimizer, all whole.
struct ShardPlacement {
  FlatRange shard = {};           ///< of the layer's own elements: its optimizer states live here
  bool whole_weights = true;      ///< false: on the device only from fetch to release
  bool whole_gradients = true;    ///< false: only from a backward to its reduction or offload
  bool gathered_weights = false;  ///< whole ones are made of peers' shards
  bool borrows_gradients =
      false;  ///< on the host: from its offload until another layer needs the buffer
  LayerTiers tiers =
      {};  ///< updated on the host: the shards of weights, gradients and states are there
  at::ScalarType dtype = at::kFloat;  ///< of the weights that layers compute with
  int optimizer_slots = 0;
  bool trains = true;  ///< false: weights alone, for inference

  /// The update writes fp32 weights as bf16 ones and what those lack.
  bool splits_weights() const { return trains && dtype == at::kBFloat16; }

  /// The update writes fp32 weights and rounds them to those that layers compute with.
  bool rounds_weights() const { return trains && dtype != at::kFloat && !splits_weights(); }

  /// The update writes to the whole weights, reads the whole gradients: no shard lies beside them.
  bool updates_in_weights() const { return whole_weights && !tiers.updates_on_host(); }
  bool updates_from_gradients() const { return whole_gradients && !tiers.updates_on_host(); }

  /// Whether a kind of the shard is on the host only while somebody pins it.
  bool on_disk(StateKind kind) const {
    if (!trains || shard.size() == 0 || tiers.states != Tier::kDisk) return false;
    if (kind == StateKind::kWeightShard) return tiers.updated_weights() == Tier::kDisk;
    if (kind == StateKind::kGradientShard)
      return tiers.gradients == Tier::kDisk && !borrows_gradients;
    return kind == StateKind::kOptimizer && (optimizer_slots > 0 || dtype != at::kFloat);
  }
};

/// What a rank keeps of a layer of a plan: the shard that `shard_rank` of the plan's shards has.
ShardPlacement shard_placement(const StepPlan& plan, int layer, const LayerLayout& layout,
                               int shard_rank);

struct LayerState {
  int layer = 0;
  const LayerLayout* layout = nullptr;
  ShardPlacement placement;
  FlatBuffer weights;         ///< [own_numel]
  FlatBuffer gradients;       ///< [total_numel]
  FlatBuffer weight_shard;    ///< [shard], unless the whole weights are what the update writes
  FlatBuffer gradient_shard;  ///< [shard], unless the whole gradients are what the update reads;
                              ///< without bytes where it is borrowed or lives on disk
  FlatBuffer master;  ///< [shard] beside 16-bit weights: fp32 ones; beside bf16: what they lack
  std::vector<FlatBuffer> slots;   ///< [shard] fp32 each
  std::vector<at::Tensor> leaves;  ///< per weight: autograd leaf, gradient preset

  /// Per kind: what still has to happen before its bytes may be read or written.
  std::array<Completion, kNumStateKinds> pending;
  Completion& pending_on(StateKind kind) { return pending[static_cast<int>(kind)]; }

  /// Makes the placement's buffers, zeroed: `host` is charged for what lives there; null: nobody.
  void make_buffers(const Stream& compute, MemoryAccount* host);

  /// The part of a layer's flat buffer that is a weight's, in its shape.
  at::Tensor view_of(const FlatBuffer& flat, std::size_t weight) const;

  /// What the weight's leaf has for a gradient: its part of the flat one; of a running statistic what it has
  /// instead (first_gradient()), which stays on the device.
  at::Tensor preset_gradient(std::size_t weight) const;

  /// The buffers in which this rank keeps a kind on the device between its uses; none for whole weights
  /// that are made of shards, nor for what lives on the host.
  std::vector<FlatBuffer*> kept(StateKind kind);

  /// What reads weights on the host for a commit; updates wait for it, fetches need not.
  Completion busy;

  /// Of weights that come from the host, where the device works behind the rank's back: its last use of
  /// them. Who writes over them does so behind it.
  Completion used;

  FlatRange own() const { return {0, layout->own_numel}; }
};

}  // namespace strata
