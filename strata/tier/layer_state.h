/// Holds all bytes that one layer has on a rank, and the decision where each kind of them lives.
///
/// Every buffer is one storage object for its whole life: bytes are installed and removed, and its
/// views (autograd leaves, gradients, saved tensors) stay valid. Only the store, its pins and its
/// backends access a buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <vector>

#include "strata/base/flat_range.h"
#include "strata/comm/block_code.h"
#include "strata/nn/graph/layout.h"
#include "strata/schedule/step_plan.h"
#include "strata/tier/flat_buffer.h"
#include "strata/tier/state_backend.h"

namespace strata {

class MemoryAccount;

/// The part of a layer's state that this rank keeps. By default whole weights, whole gradients and
/// no optimizer states.
struct ShardPlacement {
  FlatRange shard = {};           ///< the layer's own elements that this rank updates
  bool whole_weights = true;      ///< false: on the device only from fetch to release
  bool whole_gradients = true;    ///< false: only from a backward to its reduction or offload
  bool gathered_weights = false;  ///< whole weights are gathered from the replicas' shards
  Traffic traffic = {};           ///< formats in which the replicas send gradients and weights
  /// The gradient is in a host buffer that layers share, until another layer needs the buffer.
  bool borrows_gradients = false;
  LayerTiers tiers = {};
  at::ScalarType dtype = at::kFloat;  ///< of the weights that layers compute with
  int optimizer_slots = 0;
  bool trains = true;  ///< false: only weights, for inference

  /// The update writes fp32 weights in two halves: bf16 weights and the 16 bits that those lack.
  bool splits_weights() const { return trains && dtype == at::kBFloat16; }

  /// The update writes fp32 weights and rounds them to those that layers compute with.
  bool rounds_weights() const { return trains && dtype != at::kFloat && !splits_weights(); }

  /// The update writes to the whole weights and reads the whole gradients: there is no separate
  /// shard.
  bool updates_in_weights() const { return whole_weights && !tiers.updates_on_host(); }
  bool updates_from_gradients() const { return whole_gradients && !tiers.updates_on_host(); }

  /// Whether a kind of the shard is in host memory only while it is pinned.
  bool on_disk(StateKind kind) const {
    if (shard.size() == 0 || tiers.states != Tier::kDisk) return false;
    if (kind == StateKind::kWeightShard) return tiers.updated_weights() == Tier::kDisk;
    if (!trains) return false;
    if (kind == StateKind::kGradientShard)
      return tiers.gradients == Tier::kDisk && !borrows_gradients;
    return kind == StateKind::kOptimizer && (optimizer_slots > 0 || dtype != at::kFloat);
  }
};

/// Where a kind of a layer's state lives between its uses, and so which backend moves it.
enum class Home : std::uint8_t {
  kDevice,     ///< the device: nothing moves it
  kPeers,      ///< whole weights: gathered from the replicas' shards
  kHost,       ///< host memory, where it is also used
  kDisk,       ///< a file: it is in host memory while it is pinned
  kHostCopy,   ///< whole weights: the device has a copy of the shard on the host
  kDiskCopy,   ///< whole weights: the device has a copy of the shard on the disk
  kOffloaded,  ///< gradients: made on the device, from which they leave for the gradient shard
};

/// `own_numel`: elements of the layer's own weights.
Home home_of(const ShardPlacement& placement, std::int64_t own_numel, StateKind kind);

/// What a rank keeps of a layer of a plan: shard number `shard_rank` of the plan's shards.
ShardPlacement shard_placement(const StepPlan& plan, int layer, const LayerLayout& layout,
                               int shard_rank);

struct LayerState {
  LayerState(int layer, const LayerLayout& layout, const ShardPlacement& placement);

  int layer;
  const LayerLayout* layout;
  ShardPlacement placement;
  std::array<Home, kNumStateKinds> homes;
  /// Codes in which replicas send the layer's gradients and weights; empty: the numbers themselves.
  std::optional<BlockCode> gradient_code, weight_code;
  Home home(StateKind kind) const { return homes[static_cast<int>(kind)]; }

  FlatBuffer weights;         ///< [own_numel]
  FlatBuffer gradients;       ///< [total_numel]
  FlatBuffer weight_shard;    ///< [shard], unless the update writes the whole weights
  FlatBuffer gradient_shard;  ///< [shard], unless the update reads the whole gradients; without
                              ///< bytes while it is on a disk or in no shared buffer
  FlatBuffer master;  ///< [shard] with 16-bit weights: fp32 weights, or the bits that bf16 lacks
  std::vector<FlatBuffer> slots;   ///< [shard] fp32 each
  std::vector<at::Tensor> leaves;  ///< per weight: autograd leaf, gradient preset

  /// Per kind: ends when its bytes may be read or written.
  std::array<Completion, kNumStateKinds> pending;
  Completion& pending_on(StateKind kind) { return pending[static_cast<int>(kind)]; }

  /// Makes the placement's buffers, zeroed. `host` is charged for those in host memory; null: they
  /// are not accounted for.
  void make_buffers(const Stream& compute, MemoryAccount* host);

  /// The part of a layer's flat buffer that belongs to a weight, in the weight's shape.
  at::Tensor view_of(const FlatBuffer& flat, std::size_t weight) const;

  /// The gradient of the weight's leaf: its part of the flat gradient. A running statistic has
  /// first_gradient() instead, which stays on the device.
  at::Tensor preset_gradient(std::size_t weight) const;

  /// Ends when a commit has read the weights on the host. Updates wait for it; fetches need not.
  Completion busy;

  /// The last use, by an asynchronous device, of weights that were copied from the host. The next
  /// copy to the same memory waits for it.
  Completion used;

  FlatRange own() const { return {0, layout->own_numel}; }
};

}  // namespace strata
