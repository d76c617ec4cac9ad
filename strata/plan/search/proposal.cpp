// The partitioner estimates; simulator and ledger decide. Every cut that the partitioner returns
// with and without a cap, and with every layer recomputed or none, is planned in full, and the best
// of these plans wins. All plans of a request share one copy of its dataflow. Offloading is decided
// outside of that: state leaves the device only if nothing else fits.
#include "strata/plan/search/proposal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/plan/search/activation_choice.h"
#include "strata/plan/search/order_search.h"
#include "strata/plan/search/partition.h"
#include "strata/plan/search/rank_balance.h"
#include "strata/plan/search/recompute_choice.h"
#include "strata/plan/search/shared_devices.h"

namespace strata {
namespace {

constexpr double kSameSeconds = 1e-9;  // relative

// The partitioner's bytes are close to the ledger's, but not equal. Caps above and below the real
// one are tried, and no cap, which gives the fastest cut.
constexpr double kCaps[] = {1.25, 1.1, 1.0, 0.9};

// If recomputing every layer still exceeds the budget by this factor, no choice of layers is
// searched.
constexpr double kHopeless = 1.1;

// Trials of what to do with each layer's activations; for a large model as many as take about a
// second.
constexpr std::int64_t kMostTrials = 600;
constexpr std::int64_t kMostTriedActions = 400'000;

// One is filled while the other is read.
constexpr int kGradientBuffers = 2;

// The memory of a searched order, as a multiple of the activations that 1F1B's first rank holds;
// ZB-1p and ZB-2p have 1 and 2. All are tried.
constexpr double kActivationsOf1f1b[] = {1, 1.5, 2, 2.5, 3, 4};
// An order with more memory has to be faster by this factor.
constexpr double kWorthMemory = 0.995;

enum class Goal : std::uint8_t { kFastest, kAnyThatFits };

// Bytes that a plan needs of one kind of memory, on the fullest rank or shared device.
struct Need {
  std::int64_t bytes = 0;
  std::int64_t budget = 0;  // 0: no limit
};

std::array<Need, 4> needs_of(const Plan& plan) {
  const MemoryOptions& memory = plan.memory;
  const SharedDevices& devices = plan.costs.devices;
  return {{{peak_bytes(plan.ledger), memory.device.count},
           {shared_peak_bytes(devices, plan.ledger), devices.device_bytes},
           {host_bytes(plan.ledger), memory.host.count},
           {disk_bytes(plan.ledger), memory.disk.bytes.count}}};
}

// Evaluates all plans of one request.
class Proposer {
 public:
  explicit Proposer(const PlanRequest& request, Goal goal = Goal::kFastest)
      : request_(request),
        shape_(request.shape()),
        goal_(goal),
        dataflow_(std::make_shared<const Dataflow>(request.dataflow)),
        level_costs_(with_mesh_seconds(request)),
        base_(level_of(request.memory.recompute)),
        costs_(level_costs_[base_]),
        with_weights_(layers_with_weights(costs_)),
        rates_(tier_rates(request.memory, request.machine, request.update_threads,
                          request.updates_measured)) {
    places_ = request.order ? request.order->rank_of_stage
                            : ranks_of_stages(request.schedule, shape_.ranks,
                                              shape_.ranks * shape_.virtual_stages);
  }

  Plan evaluate(const Choices& choices) const {
    if (request_.schedule != ScheduleKind::kZb || choices.order) return evaluate_order(choices);
    const CostTable costs = level_costs_.at(choices.recompute.levels);
    std::optional<Plan> best;
    for (const double activations : kActivationsOf1f1b) {
      Schedule order = searched_order({.dataflow = *dataflow_,
                                       .costs = costs,
                                       .partition = choices.partition,
                                       .recompute = choices.recompute.whole,
                                       .micro_batches = shape_.micro_batches,
                                       .activations = activations});
      if (best && order.programs == best->decisions().order->programs) continue;
      Choices with_order = choices;
      with_order.order = std::make_shared<const Schedule>(std::move(order));
      Plan plan = evaluate_order(with_order);
      const bool first = !best || (!fits(*best) && better(plan, *best));
      if (first || (fits(plan) &&
                    plan.simulation.step_seconds < kWorthMemory * best->simulation.step_seconds))
        best = std::move(plan);
    }
    return std::move(*best);
  }

  Plan evaluate_order(const Choices& choices) const {
    const MeshRequest& mesh = request_.mesh;
    ZeroPolicy zero = mesh.zero;
    zero.reduce = choices.reduce;
    Plan plan{.steps = StepPlan(dataflow_, with_weights_,
                                {.schedule = request_.schedule,
                                 .mesh = mesh.axes,
                                 .virtual_stages = shape_.virtual_stages,
                                 .order = choices.order ? choices.order : request_.order,
                                 .rank_of_stage = places_,
                                 .partition = choices.partition,
                                 .recompute = choices.recompute.whole,
                                 .levels = choices.recompute.levels,
                                 .zero = zero,
                                 .tiers = requested_layout(choices.tiers),
                                 .sequence_parallel = mesh.sequence_parallel,
                                 .micro_batch = request_.micro_batch,
                                 .replicas_apart = mesh.outer_every > 0}),
              .micro_batches = shape_.micro_batches,
              .memory = request_.memory,
              .costs = level_costs_.at(choices.recompute.levels),
              .mesh = mesh,
              .rates = rates_,
              .machine = request_.machine,
              .sample_tokens = request_.sample_tokens};
    const CostTable& costs = plan.costs;
    const Schedule& schedule = plan.schedule();
    const ShardLayout& shards = plan.steps.shards();
    const TierLayout& tiers = plan.decisions().tiers;
    plan.placement = placement_of_layers(choices.tiers, tiers);
    if (request_.recording != RecordingPlan::kNever && costs.launch.kernel > 0)
      plan.recorded = recorded_programs(plan.steps, schedule);
    plan.simulation =
        simulate(schedule, *dataflow_, choices.partition, costs,
                 collective_seconds(costs, shards, mesh), tier_seconds(plan, costs), plan.recorded);
    plan.ledger =
        make_ledger(schedule, *dataflow_, choices.partition, costs, plan.simulation, shards,
                    request_.mesh.reads_in_place, tiers, plan.recorded, validation_pools(plan));
    if (!tiers.layers.empty()) {
      add_traffic(plan);
      add_validation(plan);
    }
    return plan;
  }

  Plan best(ReduceMode reduce, const std::string& reason, const TierPlacement& tiers) const {
    std::optional<Plan> best;
    for (const Partition& cut : all_cuts(reduce, tiers)) {
      Plan plan = best_window(
          {.partition = cut, .recompute = {.levels = base_}, .reduce = reduce, .tiers = tiers});
      if (!best || better(plan, *best)) best = std::move(plan);
      if (is_enough(*best)) break;
    }
    STRATA_CHECK(best, "plan.best");  // a cut without a cap always exists
    best->reduce_reason = reason;
    return std::move(*best);
  }

  const LevelCosts& level_costs() const { return level_costs_; }

  static bool better(const Plan& plan, const Plan& than) {
    if (fits(plan) != fits(than)) return fits(plan);
    const double seconds = plan.simulation.step_seconds;
    const double other = than.simulation.step_seconds;
    if (fits(plan) && std::fabs(seconds - other) > kSameSeconds * other) return seconds < other;
    if (!fits(plan) && fullness(plan) != fullness(than)) return fullness(plan) < fullness(than);
    return peak_bytes(plan.ledger) < peak_bytes(than.ledger);
  }

 private:
  // The ratio of need to budget, for the budget that the plan exceeds most.
  static double fullness(const Plan& plan) {
    double most = 0;
    for (const Need& need : needs_of(plan))
      if (need.budget > 0)
        most = std::max(most, static_cast<double>(need.bytes) / static_cast<double>(need.budget));
    return most;
  }

  static LevelCosts with_mesh_seconds(const PlanRequest& request) {
    LevelCosts costs = request.costs;
    for (CostTable& table : costs)
      if (!table.layers.empty()) table = strata::with_mesh_seconds(std::move(table), request.mesh);
    return costs;
  }

  static RecordedPrograms recorded_programs(const StepPlan& steps, const Schedule& schedule) {
    RecordedPrograms recorded;
    for (const Program& program : schedule.programs)
      recorded.push_back(recorded_segments(steps, program));
    return recorded;
  }

  Ledger validation_ledger(const Plan& plan, const RecordedPrograms& recorded = {}) const {
    const Schedule& schedule = plan.steps.proposed_evaluation(plan.micro_batches);
    const Partition& partition = plan.decisions().partition;
    return make_ledger(schedule, *dataflow_, partition, costs_,
                       simulate(schedule, *dataflow_, partition, costs_), plan.steps.shards(),
                       request_.mesh.reads_in_place, plan.decisions().tiers, recorded);
  }

  // A validation fetches weights earlier than a step, which has less free memory, so more parts of
  // gathered weights are allocated at once.
  void add_validation(Plan& plan) const {
    const std::vector<ShardBytes> layers =
        shard_bytes(costs_, plan.steps.shards(), /*reads_in_place=*/true, plan.decisions().tiers);
    if (std::ranges::none_of(layers, [](const ShardBytes& it) { return it.gathered_part > 0; }))
      return;
    const Ledger ledger = validation_ledger(plan);
    for (std::size_t r = 0; r < ledger.size(); ++r) {
      RankLedger& rank = plan.ledger[r];
      rank.host.staging = std::max(rank.host.staging, ledger[r].host.staging);
      if (ledger[r].peak_bytes <= rank.peak_bytes) continue;
      rank.peak_bytes = ledger[r].peak_bytes;
      rank.at_peak = ledger[r].at_peak;
      rank.peak_position = -1;
    }
  }

  // Per rank: the pools of recorded validations. A shorter last mini-batch keeps at most as much.
  std::vector<std::int64_t> validation_pools(const Plan& plan) const {
    if (plan.recorded.empty() || request_.validation_shapes == 0) return {};
    const Ledger ledger = validation_ledger(
        plan, recorded_programs(plan.steps, plan.steps.proposed_evaluation(plan.micro_batches)));
    std::vector<std::int64_t> pools;
    for (const RankLedger& rank : ledger)
      pools.push_back(request_.validation_shapes * rank.pool_bytes);
    return pools;
  }

  bool is_enough(const Plan& plan) const { return goal_ == Goal::kAnyThatFits && fits(plan); }

  RecomputeMode mode() const { return request_.memory.recompute; }
  // The memory that a rank may use; on a shared device its part.
  std::int64_t device_bytes() const {
    const std::int64_t budget = request_.memory.device.count;
    const std::int64_t part = costs_.devices.device_bytes / most_ranks_on_one(costs_.devices);
    return budget == 0 || (part > 0 && part < budget) ? part : budget;
  }

  std::vector<int> ranks_of(const Partition& partition) const {
    std::vector<int> ranks;
    for (int stage = 0; stage < partition.num_stages(); ++stage)
      ranks.insert(ranks.end(), partition.layers(stage).size(), places_[stage]);
    return ranks;
  }

  TierLayout requested_layout(const TierPlacement& placement) const {
    return tier_layout(placement, dataflow_->num_layers, request_.updates_at_once);
  }

  ShardLayout shards_of(ReduceMode reduce) const {
    ZeroPolicy zero = request_.mesh.zero;
    zero.reduce = reduce;
    return shard_layout(zero, request_.mesh.update_mesh().weight_ranks(), *dataflow_, with_weights_,
                        request_.mesh.sequence_parallel);
  }

  TierLayout layout_of(const TierPlacement& placement, const std::vector<int>& rank_of_layer,
                       const ShardLayout& shards) const {
    return tiers_on_ranks(requested_layout(placement), *dataflow_, with_weights_, rank_of_layer,
                          shards);
  }

  void add_traffic(Plan& plan) const {
    const TierLayout& tiers = plan.decisions().tiers;
    const ShardLayout& shards = plan.steps.shards();
    const auto layers = shard_bytes(costs_, shards, /*reads_in_place=*/true, tiers);
    for (const Program& program : plan.schedule().programs)
      plan.traffic.push_back(tier_traffic(program, costs_, layers, shards, tiers));
    const StepAmount amount = step_amount(plan);
    plan.bounds = tier_bounds(plan.simulation, plan.schedule(), tiers.updates_at_once, amount.count,
                              amount.unit);
  }

  // The largest window that fits, if it is open and weights are offloaded. Recomputes free memory
  // for more layers, so the window is searched with as few recomputes as necessary and with all.
  Plan best_window(Choices choices) const {
    const auto ranks = ranks_of(choices.partition);
    const int most =
        most_fetched(layout_of(choices.tiers, ranks, shards_of(choices.reduce)), ranks);
    if (choices.tiers.window > 0 || most == 0) return best_recompute(choices);
    const auto with_window = [&](int window) {
      choices.tiers.window = window;
      return evaluate(choices);
    };
    const auto widened = [&](const RecomputeChoice& recompute) {
      choices.recompute = recompute;
      // If all layers stay, none is fetched twice, which may need less host memory than a smaller
      // window.
      if (Plan all = with_window(most); fits(all)) return all;
      const int window = largest_window(most, [&](int tried) { return fits(with_window(tried)); });
      return with_window(std::max(1, window));
    };
    Plan best = widened(mode() == RecomputeMode::kFull ? whole_layers() : nothing_more());
    const bool has_all = fits(best) && best.placement.window == most;
    if (mode() != RecomputeMode::kAuto || has_all) return best;
    const auto consider = [&](Plan plan) {
      if (better(plan, best)) best = std::move(plan);
    };
    consider(widened(whole_layers()));
    if (!deepest().empty()) consider(widened(deepest()));
    for (const int window : {1, 2}) {
      choices.tiers.window = std::min(window, most);
      const Plan some = best_recompute(choices);
      if (fits(some)) consider(widened(recompute_choice_of(some.decisions())));
    }
    return best;
  }

  Plan best_recompute(Choices choices) const {
    choices.recompute = mode() == RecomputeMode::kFull ? whole_layers() : nothing_more();
    Plan plan = evaluate(choices);
    if (mode() != RecomputeMode::kAuto || fits(plan)) return plan;
    const Plan leanest = leanest_recompute(choices);
    if (is_enough(leanest)) return leanest;
    const auto peak = static_cast<double>(peak_bytes(leanest.ledger));
    if (peak > kHopeless * static_cast<double>(device_bytes())) return leanest;
    if (goal_ == Goal::kAnyThatFits &&
        peak_bytes(leanest.ledger) - most_run_again() > device_bytes())
      return leanest;

    std::vector<int> rank_of_layer;
    for (int l = 0; l < dataflow_->num_layers; ++l)
      rank_of_layer.push_back(plan.steps.pipeline_rank(l));
    const auto ledger_of = [this, tried = choices](const RecomputeChoice& recompute) mutable {
      tried.recompute = recompute;
      return evaluate(tried).ledger;
    };
    choices.recompute =
        choose_recompute(level_costs_, base_, rank_of_layer, device_bytes(), ledger_of);
    return evaluate(choices);
  }

  // All layers run again as a whole, or all have the deepest level, which needs fewer bytes at once
  // in each layer.
  Plan leanest_recompute(Choices choices) const {
    choices.recompute = whole_layers();
    Plan whole = evaluate(choices);
    if (deepest().empty()) return whole;
    choices.recompute = deepest();
    Plan levels = evaluate(choices);
    return better(levels, whole) ? levels : whole;
  }

  RecomputeChoice deepest() const { return deepest_levels(level_costs_, base_); }
  RecomputeChoice nothing_more() const { return {.levels = base_}; }
  RecomputeChoice whole_layers() const { return {.whole = recompute_all(costs_), .levels = base_}; }

  // The most that a layer needs while it computes again and would not need otherwise. Keeping more
  // frees nothing beyond that.
  std::int64_t most_run_again() const {
    std::vector<std::int64_t> bytes;
    const bool has_levels = !deepest().empty();  // then a layer makes again what it does not save
    for (const LayerCost& layer : costs_.layers)
      bytes.push_back(layer.forward_transient_bytes + (has_levels ? layer.saved_bytes : 0));
    for (std::size_t v = 0; v < costs_.values.size(); ++v)
      bytes[dataflow_->values[v].producer] += costs_.values[v].bytes;
    return std::ranges::max(bytes);
  }

  std::vector<Partition> all_cuts(ReduceMode reduce, const TierPlacement& tiers) const {
    const ShardLayout shards = shards_of(reduce);
    // Any cut may separate the layers of a tie.
    std::vector<int> ranks(dataflow_->num_layers);
    if (shape_.ranks > 1) std::iota(ranks.begin(), ranks.end(), 0);
    const CostTable resident = resident_costs(costs_, shards, layout_of(tiers, ranks, shards));
    std::vector<Partition> cuts;
    if (mode() != RecomputeMode::kFull) add_cuts(cuts, resident, {});
    if (mode() == RecomputeMode::kFull || (mode() == RecomputeMode::kAuto && device_bytes() > 0))
      add_cuts(cuts, resident, recompute_all(costs_));
    return cuts;
  }

  int in_flight(int rank) const {
    if (request_.order) return peak_in_flight(request_.order->programs[rank]);
    // As many as the order that holds fewest.
    if (request_.schedule == ScheduleKind::kZb)
      return in_flight_bound(ScheduleKind::kZbH1, shape_, rank);
    return in_flight_bound(request_.schedule, shape_, rank);
  }

  void add_cuts(std::vector<Partition>& cuts, const CostTable& costs,
                const LayerSet& recompute) const {
    const int ranks = shape_.ranks;
    PartitionRequest cut{.ranks = ranks,
                         .virtual_stages = shape_.virtual_stages,
                         .rank_of_stage = places_,
                         .recompute = recompute};
    const auto add_new = [&](const Partition& found) {
      if (std::ranges::find(cuts, found) == cuts.end()) cuts.push_back(found);
    };
    const auto add = [&] {
      const auto found = partition_layers(*dataflow_, costs, cut);
      if (!found) return;
      add_new(*found);
      if (shape_.virtual_stages > 1) add_new(with_even_ranks(*dataflow_, costs, cut, *found));
    };
    for (int r = 0; r < ranks; ++r) cut.in_flight.push_back(in_flight(r));
    add();
    if (device_bytes() == 0) return;
    for (const double cap : kCaps) {
      cut.device_bytes.assign(ranks, std::llround(cap * static_cast<double>(device_bytes())));
      add();
    }
  }

  const PlanRequest& request_;
  PipelineShape shape_;
  std::vector<int> places_;  // per stage: its rank
  Goal goal_;
  std::shared_ptr<const Dataflow> dataflow_;
  LevelCosts level_costs_;  // with the mesh's seconds
  Recompute base_;
  const CostTable& costs_;  // at that level
  LayerSet with_weights_;
  TierRates rates_;
};

}  // namespace

bool fits(const Plan& plan) {
  for (const Need& need : needs_of(plan))
    if (need.budget > 0 && need.bytes > need.budget) return false;
  return true;
}

Plan evaluate(const PlanRequest& request, const Choices& choices) {
  return Proposer(request).evaluate(choices);
}

namespace {

Plan propose(const PlanRequest& request, const Proposer& proposer, const TierPlacement& tiers) {
  const MeshRequest& mesh = request.mesh;
  if (mesh.update_mesh().weight_ranks() == 1)
    return proposer.best(ReduceMode::kOnce, "one replica", tiers);
  if (mesh.zero.reduce != ReduceMode::kAuto)
    return proposer.best(mesh.zero.reduce, "as requested", tiers);
  Plan once = proposer.best(ReduceMode::kOnce, "auto: the least communication", tiers);
  const bool shards_gradients =
      mesh.zero.stage >= 2 && mesh.zero.shards(mesh.axes.weight_ranks()) > 1;
  if (fits(once) || !shards_gradients || request.micro_batches == 1) return once;
  Plan each = proposer.best(
      ReduceMode::kEach, "auto: once a step needs " + format_bytes(peak_bytes(once.ledger)), tiers);
  return Proposer::better(each, once) ? each : once;
}

}  // namespace

Plan with_activations_chosen(const PlanRequest& request, Plan plan) {
  const MemoryOptions& memory = request.memory;
  const StepDecisions& decided = plan.decisions();
  const bool may_keep = memory.recompute == RecomputeMode::kAuto;
  const bool offloads = plan.placement.tiers.offloads_activations();
  const RecomputeChoice again = recompute_choice_of(decided);
  if (memory.activations != TierChoice::kAuto || memory.device.count == 0 || again.empty() ||
      (!may_keep && !offloads))
    return plan;
  PlanRequest same = request;
  if (plan.recorded.empty()) same.recording = RecordingPlan::kNever;
  const Proposer proposer(same);
  const auto choices_of = [&](const ActivationChoice& choice) {
    Choices choices{.partition = decided.partition,
                    .recompute = choice.recompute,
                    .reduce = decided.zero.reduce,
                    .tiers = plan.placement,
                    .order = decided.order};
    choices.tiers.tiers.activations = choice.offload.empty() ? Tier::kDevice : Tier::kHost;
    choices.tiers.offloaded = choice.offload;
    return choices;
  };
  const std::int64_t actions =
      std::max<std::int64_t>(1, std::ssize(plan.costs.layers) * plan.micro_batches);
  ActivationSearch search{
      .costs = proposer.level_costs(),
      .base = decided.levels.base(),
      .rank_of_layer = {},
      .device_bytes = memory.device.count,
      .may_keep = may_keep,
      .most_trials = static_cast<int>(std::min(kMostTrials, kMostTriedActions / actions)),
      .trial = [&](const ActivationChoice& choice) {
        Plan tried = proposer.evaluate(choices_of(choice));
        return ActivationTrial{fits(tried), tried.simulation.step_seconds, std::move(tried.ledger)};
      }};
  for (int l = 0; l < std::ssize(plan.costs.layers); ++l)
    search.rank_of_layer.push_back(plan.steps.pipeline_rank(l));
  const ActivationChoice start{again, offloads ? decided.recompute : LayerSet{}};
  const ActivationChoice choice = choose_activations(search, start);
  if (choice == start) return plan;
  Plan chosen = proposer.evaluate(choices_of(choice));
  chosen.reduce_reason = plan.reduce_reason;
  return chosen;
}

namespace {

Plan propose(const PlanRequest& request, Goal goal) {
  const Proposer proposer(request, goal);
  PlanRequest performed = request;
  performed.recording = RecordingPlan::kNever;
  const Proposer performer(performed, goal);
  const bool trains = request.schedule != ScheduleKind::kForward;
  const std::vector<TierPlacement> placements = tier_placements(request.memory, trains);
  STRATA_CHECK(!placements.empty(), "plan.propose");  // check_memory() rejects those
  std::optional<Plan> best;
  const auto consider = [&](const TierPlacement& tiers) {
    Plan plan = propose(request, proposer, tiers);
    // The memory of the pools may be worth more than the time of the launches.
    const bool tight = !fits(plan) || !recompute_choice_of(plan.decisions()).empty();
    if (tight && !plan.recorded.empty() && request.recording == RecordingPlan::kIfItFits) {
      Plan other = propose(performed, performer, tiers);
      if (Proposer::better(other, plan)) plan = std::move(other);
    }
    if (!best || Proposer::better(plan, *best)) best = std::move(plan);
  };
  for (TierPlacement tiers : placements) {
    // If gradients need not all exist at once, the host has memory for more, and the disk has none.
    const bool in_turns = request.updates_at_once && tiers.tiers.offloads_gradients();
    if (!in_turns || tiers.tiers.gradients != Tier::kDisk) consider(tiers);
    if (best && fits(*best)) break;
    if (!in_turns) continue;
    tiers.gradient_buffers = kGradientBuffers;
    consider(tiers);
    if (fits(*best)) break;
  }
  return std::move(*best);
}

}  // namespace

Plan propose(const PlanRequest& request) { return propose(request, Goal::kFastest); }

Plan first_that_fits(const PlanRequest& request) { return propose(request, Goal::kAnyThatFits); }

}  // namespace strata
