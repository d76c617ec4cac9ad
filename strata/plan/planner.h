/// Decides how a model trains on given ranks: where it is cut, what is computed twice, in which
/// order, and proves by simulation and ledger that it fits.
///
/// The partitioner proposes cuts, with and without the cap; each is simulated, and the fastest
/// whose ledger fits is the plan. With recompute `auto`, every rank over its budget recomputes the
/// layers that give most bytes back a second, as few as will do. Gradients of replicas are added
/// once a step; with reduce `auto`, where only that fits, after every micro-batch. What no choice of
/// these makes fit the device leaves it, as far as the options allow (tier_choice.h).
///
/// Errors  UserError `[plan.memory]` when nothing fits: the bytes of each rank by tier, and as the fix the
///         nearest settings that fit, or else the smallest budget found to; and all that partition,
///         builders and validator refuse.
#pragma once

#include <string>
#include <vector>

#include "strata/plan/communication.h"
#include "strata/plan/ledger.h"
#include "strata/plan/plan_options.h"
#include "strata/plan/simulator.h"
#include "strata/plan/tier_choice.h"
#include "strata/plan/tier_traffic.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/step_plan.h"

namespace strata {

/// Whether devices repeat segments of a step that they were given once.
enum class RecordingPlan : std::uint8_t {
  kNever,
  kIfItFits,  ///< pools of recorded segments take memory
  kAlways,
};

struct PlanRequest {
  Dataflow dataflow;
  CostTable costs_none;   ///< operations keep all they need for backward
  CostTable costs_cheap;  ///< GELU and norms compute theirs again
  PipelineShape shape;
  ScheduleKind schedule = ScheduleKind::k1f1b;
  MemoryOptions memory;
  std::int64_t micro_batch = 0;    ///< samples of a full micro-batch; 0: no smaller one is proposed
  MeshRequest mesh = {};           ///< the axes beside the pipeline, whose ranks are the shape's
  std::int64_t sample_tokens = 0;  ///< 0: a step is counted in samples
  bool updates_at_once = false;    ///< neither clipping nor a loss scale waits for all gradients
  MachineProfile machine = {};     ///< what its tiers move and update at
  int update_threads = 0;          ///< of a rank's updates on the host; 0: all cores
  bool updates_measured = true;    ///< the costs' update seconds are those of the host
  RecordingPlan recording = RecordingPlan::kNever;  ///< where devices are given their work
  int validation_shapes =
      0;  ///< shapes of mini-batches that are evaluated beside training, and recorded
};

/// What the ranks will run, and what it is predicted to take.
struct Plan {
  StepPlan steps;
  int micro_batches = 1;  ///< of a full mini-batch, a replica
  MemoryOptions memory;
  CostTable costs;  ///< the one that the recompute mode chose, with the mesh's seconds
  Simulation simulation = {};
  Ledger ledger = {};
  MeshRequest mesh = {};
  TierRates rates = {};
  TierPlacement placement = {};
  std::vector<TierTraffic> traffic = {};  ///< per rank; empty: nothing leaves the device
  TierBounds bounds = {};                 ///< of that
  std::string reduce_reason = {};         ///< one clause
  RecordedPrograms recorded = {};         ///< empty: every action is performed
  MachineProfile machine = {};            ///< for which it was made
  std::int64_t sample_tokens = 0;         ///< as of the request
  Communication communication = {};       ///< only make_plan() and follow_plan() fill it

  const Schedule& schedule() const { return steps.proposed(micro_batches); }
  const StepDecisions& decisions() const { return steps.decisions(); }
};

/// What a step gets through, of all replicas: tokens, samples, or micro-batches of one where nobody said
/// how many samples those have.
struct StepAmount {
  double count = 0;
  const char* unit = "micro-batches";
};
StepAmount step_amount(const Plan& plan);

/// Devices that its ranks compute on.
int devices_of(const Plan& plan);

/// Model FLOP/s utilisation: the operations of a forward and a backward (twice as many), of products alone
/// and without what runs again, by what all devices could do by their data sheets in a step. 0: unknown.
double flops_utilisation(const Plan& plan);

/// The table that the recompute mode chooses, without the mesh's seconds.
const CostTable& costs_for(const PlanRequest& request);

/// The seconds of `costs` on the lanes between the plan's tiers, for a simulation.
LaneSeconds lane_seconds(const Plan& plan, const CostTable& costs);

Plan make_plan(const PlanRequest& request);

/// The plan that another process has decided on, with this one's costs. `decided`: decisions_text()
/// of that one; the request must be the same but for measured seconds.
Plan follow_plan(const PlanRequest& request, const std::string& decided);

/// What measured seconds decide, and so what processes could disagree on.
std::string decisions_text(const Plan& plan);

}  // namespace strata
