// The partitioner estimates, the simulator and the ledger decide: every cut that the partitioner finds
// with and without a cap, and with every layer recomputed or none, is planned whole, and the best of
// these plans wins. All of one request are tried on one copy of its dataflow.
#include "strata/plan/proposal.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "strata/base/units.h"
#include "strata/plan/partition.h"
#include "strata/plan/recompute_choice.h"

namespace strata {
namespace {

constexpr double kSameSeconds = 1e-9;  // relative

// The partitioner's bytes are near the ledger's, not equal: caps on both sides of the real one are
// tried, and none at all, which gives the fastest cut.
constexpr double kCaps[] = {1.25, 1.1, 1.0, 0.9};

// Beyond this share of the budget with every layer computed twice, no choice of layers is searched.
constexpr double kHopeless = 1.1;

// One request, however many plans are tried out for it.
class Proposer {
 public:
  explicit Proposer(const PlanRequest& request)
      : request_(request),
        dataflow_(std::make_shared<const Dataflow>(request.dataflow)),
        costs_(with_mesh_seconds(costs_for(request), request.mesh)),
        with_weights_(layers_with_weights(costs_)) {}

  Plan evaluate(const Choices& choices) const {
    ZeroPolicy zero = request_.mesh.zero;
    zero.reduce = choices.reduce;
    Plan plan{
        .steps = StepPlan(
            dataflow_, with_weights_,
            {.schedule = request_.schedule,
             .mesh = {.pp = request_.shape.ranks, .dp = request_.mesh.dp, .tp = request_.mesh.tp},
             .virtual_stages = request_.shape.virtual_stages,
             .partition = choices.partition,
             .recompute = choices.recompute,
             .keep_intermediates = mode() == RecomputeMode::kNone,
             .zero = zero,
             .sequence_parallel = request_.mesh.sequence_parallel,
             .micro_batch = request_.micro_batch}),
        .micro_batches = request_.shape.micro_batches,
        .memory = request_.memory,
        .costs = costs_,
        .mesh = request_.mesh};
    const Schedule& schedule = plan.schedule();
    const ShardLayout& shards = plan.steps.shards();
    plan.simulation = simulate(schedule, *dataflow_, choices.partition, costs_,
                               collective_seconds(costs_, shards, request_.mesh.rates.dp));
    plan.ledger = make_ledger(schedule, *dataflow_, choices.partition, costs_, plan.simulation,
                              shards, request_.mesh.reads_in_place);
    return plan;
  }

  Plan best(ReduceMode reduce, const std::string& reason) const {
    std::optional<Plan> best;
    for (const Partition& cut : all_cuts(reduce)) {
      Plan plan = best_recompute({.partition = cut, .reduce = reduce});
      if (!best || better(plan, *best)) best = std::move(plan);
    }
    best->reduce_reason = reason;
    return std::move(*best);
  }

  static bool better(const Plan& plan, const Plan& than) {
    if (fits(plan) != fits(than)) return fits(plan);
    const double seconds = plan.simulation.step_seconds;
    const double other = than.simulation.step_seconds;
    if (fits(plan) && std::fabs(seconds - other) > kSameSeconds * other) return seconds < other;
    return peak_bytes(plan.ledger) < peak_bytes(than.ledger);
  }

 private:
  RecomputeMode mode() const { return request_.memory.recompute; }
  std::int64_t device_bytes() const { return request_.memory.device.count; }

  Plan best_recompute(Choices choices) const {
    if (mode() == RecomputeMode::kFull) choices.recompute = recompute_all(costs_);
    Plan plan = evaluate(choices);
    if (mode() != RecomputeMode::kAuto || fits(plan)) return plan;
    choices.recompute = recompute_all(costs_);
    Plan full = evaluate(choices);
    if (peak_bytes(full.ledger) > kHopeless * static_cast<double>(device_bytes())) return full;

    std::vector<int> rank_of_layer;
    for (int l = 0; l < dataflow_->num_layers; ++l)
      rank_of_layer.push_back(plan.steps.pipeline_rank(l));
    const auto ledger_of = [this, tried = choices](const LayerSet& recompute) mutable {
      tried.recompute = recompute;
      return evaluate(tried).ledger;
    };
    choices.recompute =
        choose_recompute(costs_for(request_), rank_of_layer, device_bytes(), ledger_of);
    return evaluate(choices);
  }

  std::vector<Partition> all_cuts(ReduceMode reduce) const {
    ZeroPolicy zero = request_.mesh.zero;
    zero.reduce = reduce;
    const CostTable resident =
        resident_costs(costs_, shard_layout(zero, request_.mesh.dp, *dataflow_, with_weights_));
    std::vector<Partition> cuts;
    if (mode() != RecomputeMode::kFull) add_cuts(cuts, resident, {});
    if (mode() == RecomputeMode::kFull || (mode() == RecomputeMode::kAuto && device_bytes() > 0))
      add_cuts(cuts, resident, recompute_all(costs_));
    return cuts;
  }

  void add_cuts(std::vector<Partition>& cuts, const CostTable& costs,
                const LayerSet& recompute) const {
    const int ranks = request_.shape.ranks;
    PartitionRequest cut{
        .ranks = ranks, .virtual_stages = request_.shape.virtual_stages, .recompute = recompute};
    const auto add = [&] {
      const auto found = partition_layers(*dataflow_, costs, cut);
      if (found && std::find(cuts.begin(), cuts.end(), *found) == cuts.end())
        cuts.push_back(*found);
    };
    for (int r = 0; r < ranks; ++r)
      cut.in_flight.push_back(in_flight_bound(request_.schedule, request_.shape, r));
    add();
    if (device_bytes() == 0) return;
    for (const double cap : kCaps) {
      cut.device_bytes.assign(ranks, std::llround(cap * static_cast<double>(device_bytes())));
      add();
    }
  }

  const PlanRequest& request_;
  std::shared_ptr<const Dataflow> dataflow_;
  CostTable costs_;  // with the mesh's seconds
  LayerSet with_weights_;
};

}  // namespace

const CostTable& costs_for(const PlanRequest& request) {
  return request.memory.recompute == RecomputeMode::kNone ? request.costs_none
                                                          : request.costs_cheap;
}

bool fits(const Plan& plan) {
  const std::int64_t device_bytes = plan.memory.device.count;
  return device_bytes == 0 || peak_bytes(plan.ledger) <= device_bytes;
}

Plan evaluate(const PlanRequest& request, const Choices& choices) {
  return Proposer(request).evaluate(choices);
}

Plan propose(const PlanRequest& request) {
  const MeshRequest& mesh = request.mesh;
  const Proposer proposer(request);
  if (mesh.dp == 1) return proposer.best(ReduceMode::kOnce, "one replica");
  if (mesh.zero.reduce != ReduceMode::kAuto) return proposer.best(mesh.zero.reduce, "as asked");
  Plan once = proposer.best(ReduceMode::kOnce, "auto: the least communication");
  const bool shards_gradients = mesh.zero.stage >= 2 && mesh.zero.shards(mesh.dp) > 1;
  if (fits(once) || !shards_gradients || request.shape.micro_batches == 1) return once;
  Plan each = proposer.best(ReduceMode::kEach,
                            "auto: once a step needs " + format_bytes(peak_bytes(once.ledger)));
  return Proposer::better(each, once) ? each : once;
}

}  // namespace strata
