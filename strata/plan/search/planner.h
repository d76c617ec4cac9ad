/// Decides how a model trains on given ranks: where it is cut, what is recomputed, in which order
/// ranks work. Simulation and ledger prove that the plan fits.
///
/// The partitioner proposes cuts, with and without the cap. Each is simulated; the fastest whose
/// ledger fits is the plan. With recompute `auto`, every rank over its budget computes as little
/// again as possible, what frees the most bytes per second (recompute_choice.h). Replicas sum
/// gradients once per step; with reduce `auto`, after every micro-batch if only that fits. If
/// nothing makes a kind of state fit, it leaves the device, as far as the options allow
/// (tier_choice.h).
///
/// Errors  UserError `[plan.memory]` if nothing fits, with the bytes of each rank by tier. The fix
///         names the nearest settings that fit, or else the smallest budget that does. Passes on
///         the errors of partition, builders and validator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/plan/ledger/ledger.h"
#include "strata/plan/plan_options.h"
#include "strata/plan/search/tier_choice.h"
#include "strata/plan/simulate/communication.h"
#include "strata/plan/simulate/simulator.h"
#include "strata/plan/simulate/tier_traffic.h"
#include "strata/schedule/step_plan.h"

namespace strata {

/// Whether devices record segments of a step and repeat them.
enum class RecordingPlan : std::uint8_t {
  kNever,
  kIfItFits,  ///< if the pools of recorded segments fit
  kAlways,
};

struct PlanRequest {
  Dataflow dataflow;
  LevelCosts costs;
  int micro_batches = 1;   ///< of a mini-batch, per replica
  int virtual_stages = 1;  ///< per rank
  ScheduleKind schedule = ScheduleKind::k1f1b;
  /// of whole stages, read from a file (ScheduleKind::kFile)
  std::shared_ptr<const Schedule> order = nullptr;
  MemoryOptions memory;
  bool states_on_device = false;  ///< updates need weights and states there: no tier is proposed
  /// samples of a full micro-batch; 0: no smaller one is proposed
  std::int64_t micro_batch = 0;
  MeshRequest mesh = {};
  std::int64_t sample_tokens = 0;  ///< 0: a step is counted in samples
  bool updates_at_once = false;    ///< neither clipping nor a loss scale needs all gradients
  MachineProfile machine = {};     ///< the rates of the tiers
  int update_threads = 0;          ///< threads of a rank's updates on the host; 0: all cores
  bool updates_measured = true;    ///< the costs' update seconds were measured on the host
  /// for devices whose host enqueues their work
  RecordingPlan recording = RecordingPlan::kNever;
  int validation_shapes =
      0;  ///< shapes of mini-batches that are recorded for evaluation, in addition to training

  /// The pipeline of one replica.
  PipelineShape shape() const {
    return {mesh.axes[Axis::kPipeline], micro_batches, virtual_stages};
  }
  /// The table of the mode's level, without the mesh's seconds.
  const CostTable& mode_costs() const { return costs[level_of(memory.recompute)]; }
};

/// What the ranks will run, and its predicted time and memory.
struct Plan {
  StepPlan steps;
  int micro_batches = 1;  ///< micro-batches of a full mini-batch, per replica
  MemoryOptions memory;
  CostTable costs;  ///< of each layer at its level, with the mesh's seconds
  Simulation simulation = {};
  Ledger ledger = {};
  MeshRequest mesh = {};  ///< the request's
  TierRates rates = {};
  TierPlacement placement = {};
  std::vector<TierTraffic> traffic = {};  ///< per rank; empty: nothing leaves the device
  TierBounds bounds = {};                 ///< bounds of that traffic
  std::string reduce_reason = {};         ///< one clause
  RecordedPrograms recorded = {};         ///< empty: every action is performed
  MachineProfile machine = {};            ///< the machine of the request
  std::int64_t sample_tokens = 0;         ///< as in the request
  Communication communication = {};       ///< only make_plan() and follow_plan() set it

  const Schedule& schedule() const { return steps.proposed(micro_batches); }
  const StepDecisions& decisions() const { return steps.decisions(); }
};

/// The amount that a step processes, over all replicas: tokens, samples, or micro-batches of one if
/// the number of samples is unknown.
struct StepAmount {
  double count = 0;
  const char* unit = "micro-batches";
};
StepAmount step_amount(const Plan& plan);

/// The number of devices that the plan's ranks compute on.
int devices_of(const Plan& plan);

/// Model FLOP/s utilisation: the products of a forward and a backward (twice as many), without
/// recomputes, divided by the data-sheet peak of all devices in a step. 0: unknown.
double flops_utilisation(const Plan& plan);

/// The seconds of `costs` on the executors and copy streams between the plan's tiers, for a
/// simulation.
TierSeconds tier_seconds(const Plan& plan, const CostTable& costs);

Plan make_plan(const PlanRequest& request);

/// Makes the plan that another process has decided on, with this process' costs. `decided`:
/// decisions_text() of the other; the requests may differ in measured seconds only.
Plan follow_plan(const PlanRequest& request, const std::string& decided);

/// The decisions that depend on measured seconds, on which processes could disagree.
std::string decisions_text(const Plan& plan);

/// The decisions of an earlier run for one that resumes it: without the order of a file, which may
/// be another one now.
std::string decisions_to_resume(const std::string& decided, ScheduleKind schedule);

}  // namespace strata
