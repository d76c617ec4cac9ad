/// Holds everything that decides what the ranks of a mesh do in a step, and their programs. The
/// planner makes it; trainers run it.
///
/// Programs are built, lowered and checked once per number of micro-batches, at the first request:
/// by a planner, or by a rank that trains on a smaller last mini-batch.
///
/// Threads  all ranks may read a plan at once.
/// Errors   UserError: what builders and validator reject. InternalError: a partition that does not
///          fit the mesh.
/// Example  StepPlan(model.dataflow(), weights, {.partition = {{0, 2, 4}}, .micro_batch = 2})
#pragma once

#include <cstdint>
#include <memory>

#include "strata/layout/mesh.h"
#include "strata/layout/recompute.h"
#include "strata/layout/tiers.h"
#include "strata/layout/zero.h"
#include "strata/schedule/builders.h"

namespace strata {

/// The mesh of one data-parallel replica.
inline Mesh one_replica(Mesh mesh) {
  mesh[Axis::kData] = 1;
  return mesh;
}

struct StepDecisions {
  ScheduleKind schedule = ScheduleKind::k1f1b;
  Mesh mesh = {};          ///< default: one rank; a pipeline has one rank per stage
  int virtual_stages = 1;  ///< per rank
  /// Of whole stages, for kinds without a builder; for as many micro-batches as a mini-batch has.
  std::shared_ptr<const Schedule> order = nullptr;
  std::vector<int> rank_of_stage = {};  ///< empty: where the schedule places them
  Partition partition = {};             ///< mesh.pp * virtual_stages stages; empty: one stage
  LayerSet recompute = {};              ///< layers that run again as a whole
  RecomputeLevels levels = {};          ///< what layers compute again inside
  ZeroPolicy zero = {};
  /// as requested; StepPlan::tiers() is the layout that results on its ranks
  TierLayout tiers = {};
  bool sequence_parallel = false;  ///< tensor-parallel ranks divide the sequence
  std::int64_t micro_batch = 1;    ///< samples
  /// Each replica (axis dp) updates its weights by its own gradients.
  bool replicas_apart = false;

  /// The ranks that make an update together: the mesh, or one replica of it.
  Mesh update_mesh() const { return replicas_apart ? one_replica(mesh) : mesh; }
};

class StepPlan {
 public:
  StepPlan() = default;  ///< an empty plan, to be assigned

  /// `with_weights`: the layers that own weights.
  StepPlan(std::shared_ptr<const Dataflow> dataflow, const LayerSet& with_weights,
           StepDecisions decisions);
  StepPlan(const Dataflow& dataflow, const LayerSet& with_weights, StepDecisions decisions)
      : StepPlan(std::make_shared<const Dataflow>(dataflow), with_weights, std::move(decisions)) {}

  const StepDecisions& decisions() const;
  const Dataflow& dataflow() const;
  const ShardLayout& shards() const;
  int pipeline_rank(int layer) const;  ///< rank along pp

  /// Checked programs, ready to run.
  const Schedule& training(int micro_batches) const;
  const Schedule& evaluation(int micro_batches) const;

  /// Gives all copies of the plan another order of the same stages and micro-batches. Call it only
  /// while no rank of the process is in a step.
  void reorder(Schedule order) const;

  /// training() and evaluation() without checks, for plans that are compared before one is chosen.
  const Schedule& proposed(int micro_batches) const;
  const Schedule& proposed_evaluation(int micro_batches) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared by all copies
};

}  // namespace strata
