#include "strata/plan/proposal.h"

#include <algorithm>
#include <cmath>
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

Plan try_out(const PlanRequest& request, const ShardingRequest& sharding,
             const Partition& partition, const std::vector<char>& recompute) {
  Plan plan{.shape = request.shape,
            .memory = request.memory,
            .costs = with_mesh_seconds(costs_for(request), request.mesh),
            .partition = partition,
            .recompute = recompute,
            .mesh = request.mesh,
            .sharding = sharding};
  plan.schedule =
      schedule::lowered_schedule(step_request(request, plan), request.dataflow, partition);
  plan.simulation =
      simulate(plan.schedule, request.dataflow, partition, plan.costs,
               collective_seconds(plan.costs, request.dataflow, sharding, request.mesh.rates.dp));
  plan.ledger = make_ledger(plan.schedule, request.dataflow, partition, plan.costs, plan.simulation,
                            sharding);
  return plan;
}

Plan try_out(const PlanRequest& request, const ShardingRequest& sharding,
             const Partition& partition) {
  const CostTable& costs = costs_for(request);
  const std::string& mode = request.memory.recompute;
  const std::vector<char> none(costs.layers.size());
  if (mode == "full") return try_out(request, sharding, partition, recompute_all(costs));
  Plan plan = try_out(request, sharding, partition, none);
  if (mode != "auto" || fits(plan)) return plan;
  Plan full = try_out(request, sharding, partition, recompute_all(costs));
  if (peak_bytes(full.ledger) > kHopeless * static_cast<double>(request.memory.device.count)) {
    return full;
  }

  std::vector<int> rank_of_layer;
  for (int l = 0; l < request.dataflow.num_layers; ++l) {
    rank_of_layer.push_back(plan.schedule.rank_of_stage[partition.stage_of(l)]);
  }
  const auto recompute = choose_recompute(
      costs, rank_of_layer, request.memory.device.count, [&](const std::vector<char>& flags) {
        return try_out(request, sharding, partition, flags).ledger;
      });
  return try_out(request, sharding, partition, recompute);
}

void add_cuts(std::vector<Partition>& cuts, const PlanRequest& request, const CostTable& costs,
              const std::vector<char>& recompute) {
  const int ranks = request.shape.ranks;
  PartitionRequest cut{
      .ranks = ranks, .virtual_stages = request.shape.virtual_stages, .recompute = recompute};
  const auto add = [&] {
    const auto found = partition_layers(request.dataflow, costs, cut);
    if (found && std::find(cuts.begin(), cuts.end(), *found) == cuts.end()) cuts.push_back(*found);
  };
  for (int r = 0; r < ranks; ++r) {
    cut.in_flight.push_back(schedule::in_flight_bound(request.schedule, request.shape, r));
  }
  add();
  if (request.memory.device.count == 0) return;
  for (const double cap : kCaps) {
    cut.device_bytes.assign(ranks,
                            std::llround(cap * static_cast<double>(request.memory.device.count)));
    add();
  }
}

std::vector<Partition> all_cuts(const PlanRequest& request, const ShardingRequest& sharding) {
  const CostTable costs = resident_costs(with_mesh_seconds(costs_for(request), request.mesh),
                                         request.dataflow, sharding);
  const std::string& mode = request.memory.recompute;
  std::vector<Partition> cuts;
  if (mode != "full") add_cuts(cuts, request, costs, std::vector<char>(costs.layers.size()));
  if (mode == "full" || (mode == "auto" && request.memory.device.count > 0)) {
    add_cuts(cuts, request, costs, recompute_all(costs));
  }
  return cuts;
}

bool better(const Plan& plan, const Plan& than) {
  if (fits(plan) != fits(than)) return fits(plan);
  const double seconds = plan.simulation.step_seconds;
  const double other = than.simulation.step_seconds;
  if (fits(plan) && std::fabs(seconds - other) > kSameSeconds * other) return seconds < other;
  return peak_bytes(plan.ledger) < peak_bytes(than.ledger);
}

Plan best_plan(const PlanRequest& request, const ShardingRequest& sharding,
               const std::string& reason) {
  std::optional<Plan> best;
  for (const Partition& cut : all_cuts(request, sharding)) {
    Plan plan = try_out(request, sharding, cut);
    if (!best || better(plan, *best)) best = std::move(plan);
  }
  best->reduce_reason = reason;
  return std::move(*best);
}

}  // namespace

schedule::StepRequest step_request(const PlanRequest& request, const Plan& plan) {
  return {.schedule = request.schedule,
          .shape = request.shape,
          .recompute = plan.recompute,
          .sharing = sharing_of(plan.sharding, request.dataflow, plan.costs)};
}

const CostTable& costs_for(const PlanRequest& request) {
  return request.memory.recompute == "none" ? request.costs_none : request.costs_cheap;
}

bool fits(const Plan& plan) {
  const std::int64_t device_bytes = plan.memory.device.count;
  return device_bytes == 0 || peak_bytes(plan.ledger) <= device_bytes;
}

Plan propose(const PlanRequest& request) {
  const MeshRequest& mesh = request.mesh;
  if (mesh.dp == 1) return best_plan(request, sharding_request(mesh, false), "one replica");
  if (mesh.reduce != "auto") {
    return best_plan(request, sharding_request(mesh, mesh.reduce == "each"), "as asked");
  }
  Plan once = best_plan(request, sharding_request(mesh, false), "auto: the least communication");
  if (fits(once) || !once.sharding.shards(2) || request.shape.micro_batches == 1) {
    return once;
  }
  Plan each = best_plan(request, sharding_request(mesh, true),
                        "auto: once a step needs " + format_bytes(peak_bytes(once.ledger)));
  return better(each, once) ? each : once;
}

}  // namespace strata
