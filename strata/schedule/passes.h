/// Turns a builder's compute order into the full program of a step.
///
/// Each pass is a function from schedule to schedule and does one thing. `lower` is their
/// composition in the only order that makes sense.
#pragma once

#include <vector>

#include "strata/schedule/action.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/tiers.h"
#include "strata/schedule/zero.h"

namespace strata {

/// Gives every compute action the layers of its stage.
Schedule with_layers(Schedule schedule, const Partition& partition);

/// Splits the backwards of stages that hold a recomputed layer: each such layer gets a kRecompute
/// just before its own kBackward, in descending layer order; runs of layers that keep their
/// activations stay one action.
Schedule with_recompute(Schedule schedule, const LayerSet& recompute);

/// Splits compute actions at layers whose weights are not always there, because replicas shard them or
/// because they live on the host, and fetches and releases them, so that at most `tiers.window` of them
/// are there at once (more where one action needs more) and the fetch of the next overlaps with compute.
Schedule with_prefetches(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
                         const ShardLayout& shards, const TierLayout& tiers = {});

/// Takes the inputs that recomputed layers keep to the host, where they live there, and brings them back
/// while the action before the recompute runs. What is computed again at once stays.
Schedule with_activation_offloads(Schedule schedule, const TierLayout& tiers);

/// Starts the reduction of a layer's gradients right after its last backward (or each one), so that
/// it overlaps with the backwards of the layers below; of layers that are reduced each time, at
/// most one reduction is under way. Owners of ties wait for with_update.
Schedule with_reductions(Schedule schedule, const Dataflow& dataflow, const ShardLayout& shards);

/// Takes gradients that live off the device away right behind the last backward of their layer, and, with
/// `tiers.updates_at_once`, updates the layer then. Layers in ties and those that replicas reduce wait
/// for with_update.
Schedule with_offloads(Schedule schedule, const Dataflow& dataflow, const ShardLayout& shards,
                       const TierLayout& tiers);

/// Adds sends just after the action that makes a value (or its gradient) and receives just before
/// the first action that needs it: a recompute starts while the gradient is still on its way. A
/// value goes straight from its producer to each consuming stage on another rank, once a rank and
/// micro-batch; gradients go back once per consuming layer, for the producer to sum in descending
/// consumer order. Stages on the same rank exchange nothing.
Schedule with_transfers(Schedule schedule, const Dataflow& dataflow, const Partition& partition);

/// Adds the end of the step, on every rank: the tied gradients' way to their owners and their sum,
/// what is left of the reductions and offloads, kReduceNormAndLoss, a kUpdate a layer (and a fetch of
/// what the host has updated, where weights stay), a kGatherWeights for each layer whose whole weights
/// replicas have updated a shard each of, and the tied weights' way back.
Schedule with_update(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
                     const ShardLayout& shards = {}, const TierLayout& tiers = {});

/// Brings the rows of a step to the rank that reads them, before anything else, and sends their gradients
/// right behind the last backward that makes them. Forward-only programs read them alone.
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
