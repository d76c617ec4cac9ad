/// Holds everything that decides what the ranks of a mesh do in a step, and their programs: what the
/// planner has decided, and what trainers run.
///
/// Programs are built, lowered and checked once for each number of micro-batches, whoever asks first:
/// a planner, or a rank that trains on a smaller last mini-batch.
///
/// Threads  a plan may be read by all ranks at once.
/// Errors   UserError: what builders and validator refuse. InternalError: a partition that doesn't
///          fit the mesh.
/// Example  StepPlan(model.dataflow(), weights, {.partition = {{0, 2, 4}}, .micro_batch = 2})
#pragma once

#include <cstdint>
#include <memory>

#include "strata/schedule/builders.h"
#include "strata/schedule/mesh.h"
#include "strata/schedule/tiers.h"
#include "strata/schedule/zero.h"

namespace strata {

struct StepDecisions {
  ScheduleKind schedule = ScheduleKind::k1f1b;
  Mesh mesh = {};            ///< one rank: a pipeline with a rank for each stage
  int virtual_stages = 1;    ///< per rank
  Partition partition = {};  ///< mesh.pp * virtual_stages stages; empty: one stage
  LayerSet recompute = {};
  bool keep_intermediates = false;  ///< recompute nothing inside layers either
  ZeroPolicy zero = {};
  TierLayout tiers = {};           ///< as asked; a plan's own is what becomes of that on its ranks
  bool sequence_parallel = false;  ///< tensor-parallel ranks divide the sequence
  std::int64_t micro_batch = 1;    ///< samples
};

class StepPlan {
 public:
  StepPlan() = default;  ///< of nothing; to be assigned

  /// `with_weights`: the layers that own some.
  StepPlan(std::shared_ptr<const Dataflow> dataflow, const LayerSet& with_weights,
           StepDecisions decisions);
  StepPlan(const Dataflow& dataflow, const LayerSet& with_weights, StepDecisions decisions)
      : StepPlan(std::make_shared<const Dataflow>(dataflow), with_weights, std::move(decisions)) {}

  const StepDecisions& decisions() const;
  const Dataflow& dataflow() const;
  const ShardLayout& shards() const;
  int pipeline_rank(int layer) const;  ///< along pp

  /// Checked: fit to run.
  const Schedule& training(int micro_batches) const;
  const Schedule& evaluation(int micro_batches) const;

  /// training() and evaluation(), not checked: for plans that are compared before one is chosen.
  const Schedule& proposed(int micro_batches) const;
  const Schedule& proposed_evaluation(int micro_batches) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // of all copies
};

/// Refuses a schedule that could not run, or that holds more activations than its kind promises.
void check_schedule(const Schedule& schedule, ScheduleKind kind, PipelineShape shape,
                    const ShardLayout& shards, const TierLayout& tiers, const Dataflow& dataflow,
                    const Partition& partition);

}  // namespace strata
