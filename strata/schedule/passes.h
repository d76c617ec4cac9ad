/// Turns a builder's compute order into the full program of a step.
///
/// Each pass is a function from schedule to schedule and does one thing. `lower` is their
/// composition in the only order that makes sense.
#pragma once

#include <vector>

#include "strata/schedule/action.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/zero.h"

namespace strata {

/// Gives every compute action the layers of its stage.
Schedule with_layers(Schedule schedule, const Partition& partition);

/// Splits the backwards of stages that hold a recomputed layer: each such layer gets a kRecompute
/// just before its own kBackward, in descending layer order; runs of layers that keep their
/// activations stay one action.
Schedule with_recompute(Schedule schedule, const LayerSet& recompute);

/// Splits compute actions at layers whose weights are sharded and keeps a window of whole weights:
/// those of the running action and of the next one, whose fetch thereby overlaps with compute.
Schedule with_prefetches(Schedule schedule, const ShardLayout& shards);

/// Starts the reduction of a layer's gradients right after its last backward (or each one), so that
/// it overlaps with the backwards of the layers below; of layers that are reduced each time, at
/// most one reduction is under way. Owners of ties wait for with_update.
Schedule with_reductions(Schedule schedule, const Dataflow& dataflow, const ShardLayout& shards);

/// Adds sends just after the action that makes a value (or its gradient) and receives just before
/// the first action that needs it: a recompute starts while the gradient is still on its way. A
/// value goes straight from its producer to each consuming stage on another rank, once a rank and
/// micro-batch; gradients go back once per consuming layer, for the producer to sum in descending
/// consumer order. Stages on the same rank exchange nothing.
Schedule with_transfers(Schedule schedule, const Dataflow& dataflow, const Partition& partition);

/// Adds the end of the step, on every rank: the tied gradients' way to their owners and their sum,
/// what is left of the reductions, kReduceNormAndLoss, a kUpdate a layer, a kGatherWeights for each
/// layer whose whole weights replicas have updated a shard each of, and the tied weights' way back.
Schedule with_update(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
                     const ShardLayout& shards = {});

struct LowerOptions {
  LayerSet recompute = {};
  ShardLayout shards = {};
  bool update = true;  ///< false for forward-only schedules
};

Schedule lower(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
               const LowerOptions& options);

}  // namespace strata
