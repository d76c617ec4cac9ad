/// Turns a builder's compute order into the full program of a step.
///
/// Each pass is a function from schedule to schedule and does one thing. `lower` applies all of
/// them in the only valid order.
#pragma once

#include <vector>

#include "strata/layout/dataflow.h"
#include "strata/layout/tiers.h"
#include "strata/layout/zero.h"
#include "strata/schedule/action.h"

namespace strata {

/// Joins the halves of the first stage's backwards where they follow one another: no other stage
/// waits for its gradients, and a whole backward keeps less memory.
Schedule with_joined_halves(Schedule schedule);

/// Gives every compute action the layers of its stage.
Schedule with_layers(Schedule schedule, const Partition& partition);

/// Runs the backwards of these layers whole, where their first half was.
Schedule with_whole_backwards(Schedule schedule, const LayerSet& layers);

/// The layers whose weights leave the device, or whose gradients are reduced, before a second half
/// could run.
LayerSet undivided_layers(const Dataflow& dataflow, const ShardLayout& shards,
                          const TierLayout& tiers);

/// Splits the backwards of stages with recomputed layers: each such layer gets a kRecompute just
/// before its own backward or first half, in descending layer order. Adjacent layers that keep
/// their activations stay one action.
Schedule with_recompute(Schedule schedule, const LayerSet& recompute);

/// Splits compute actions at layers whose weights are sharded over replicas or live on the host,
/// and adds the fetches and releases of those weights. At most `tiers.window` of these layers are
/// on the device at once, more if one action needs more. The fetch of the next layer overlaps with
/// compute.
Schedule with_prefetches(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
                         const ShardLayout& shards, const TierLayout& tiers = {});

/// Offloads the saved inputs of recomputed layers to the host, where the layout asks for it, and
/// fetches them while the action before the recompute runs. Inputs that are needed at once stay.
Schedule with_activation_offloads(Schedule schedule, const TierLayout& tiers);

/// Starts the reduction of a layer's gradients right after its last backward, or after each one, so
/// that it overlaps with the backwards of the layers below. Of the layers that are reduced after
/// each backward, at most one reduction is in progress. Owners of ties wait for with_update.
Schedule with_reductions(Schedule schedule, const Dataflow& dataflow, const ShardLayout& shards);

/// Offloads the gradients that live off the device right after the last backward of their layer.
/// With `tiers.updates_at_once` the layer is updated there, too. Layers in ties, and layers that
/// replicas reduce, wait for with_update.
Schedule with_offloads(Schedule schedule, const Dataflow& dataflow, const ShardLayout& shards,
                       const TierLayout& tiers);

/// Adds sends right after the action that produces a value or its gradient, and receives right
/// before the first action that needs it. A recompute therefore starts while the gradient is still
/// in transit. A value is sent once per micro-batch to each rank that consumes it. Gradients return
/// once per consuming layer, so that the producer can sum them in descending consumer order. Stages
/// on the same rank exchange no messages.
Schedule with_transfers(Schedule schedule, const Dataflow& dataflow, const Partition& partition);

/// Adds the end of the step on every rank: sends tied gradients to their owners and sums them,
/// completes reductions and offloads, then adds kReduceNormAndLoss and one kUpdate per layer. A
/// layer that the host updates and whose weights stay on the device is fetched; a layer whose whole
/// weights are updated in shards gets a kGatherWeights. Last, updated tied weights are sent to the
/// ranks that use them.
Schedule with_update(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
                     const ShardLayout& shards = {}, const TierLayout& tiers = {});

/// Reads the embeddings of a step first, on the rank that uses them, and sends their gradients
/// right after the last backward that computes them. Forward-only programs only read them.
Schedule with_rows(Schedule schedule, const Dataflow& dataflow);

struct LowerOptions {
  LayerSet recompute = {};
  ShardLayout shards = {};
  TierLayout tiers = {};
  bool update = true;  ///< false for forward-only schedules
};

Schedule lower(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
               const LowerOptions& options);

}  // namespace strata
