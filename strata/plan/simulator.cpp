#include "strata/plan/simulator.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>

#include "strata/base/errors.h"
#include "strata/schedule/execute.h"

namespace strata {
namespace {

// Of a message: what, whose gradient, of which micro-batch, from where, to where.
using Message = std::tuple<Op, int, int, int, int, int>;

Message message_of(int rank, const Action& action) {
  const bool send = is_send(action.op);
  return {send ? receive_of(action.op) : action.op,
          action.value,
          action.consumer,
          action.micro_batch,
          send ? rank : action.peer,
          send ? action.peer : rank};
}

// What the clocks have in common.
struct World {
  const CostTable* costs = nullptr;
  int num_ranks = 0;
  double tie_seconds_per_byte = 0;
  const CollectiveSeconds* collective_seconds = nullptr;
  std::map<Message, double> arrivals;
  std::vector<std::map<int, double>> collectives;  // of each: when a rank came
};

// A rank whose work is to let time pass.
class Clock : public Machine {
 public:
  Clock(int rank, World& world) : rank_(rank), world_(&world) {}

  bool ready(const Action& action) override {
    if (is_receive(action.op)) return world_->arrivals.count(message_of(rank_, action)) != 0;
    if (action.op != Op::kReduceNorm) return true;
    if (world_->collectives.size() == left_) world_->collectives.emplace_back();
    world_->collectives[left_][rank_] = now_;
    return static_cast<int>(world_->collectives[left_].size()) == world_->num_ranks;
  }

  void perform(const Action& action) override {
    if (is_compute(action.op)) wait_for_weights(action.layers);
    const double begin = now_;
    now_ = end_of(action);
    timeline_.events.push_back({kind_of(action.op), action.stage, action.micro_batch,
                                action.layers.size() > 0 ? action.layers.begin : -1, begin, now_});
    if (is_compute(action.op) || action.op == Op::kUpdate) timeline_.busy_seconds += now_ - begin;
    if (is_send(action.op)) {
      world_->arrivals[message_of(rank_, action)] = now_ + transfer_seconds(action);
    }
  }

  double now() const { return now_; }
  RankTimeline take_timeline() { return std::move(timeline_); }

 private:
  // Behind what the channel still has to do.
  void start(LayerRange layers, const std::vector<double>& seconds, std::map<int, double>& ends) {
    for (int l = layers.begin; l < layers.end; ++l) {
      channel_free_ = std::max(channel_free_, now_) + (seconds.empty() ? 0 : seconds[l]);
      ends[l] = channel_free_;
    }
  }

  static double latest(LayerRange layers, const std::map<int, double>& ends, double now) {
    for (int l = layers.begin; l < layers.end; ++l) {
      if (const auto end = ends.find(l); end != ends.end()) now = std::max(now, end->second);
    }
    return now;
  }

  void wait_for_weights(LayerRange layers) { now_ = latest(layers, weights_at_, now_); }

  double end_of(const Action& action) {
    const double overhead = world_->costs->overhead_seconds;
    if (is_compute(action.op)) return now_ + compute_seconds(action) + overhead;
    if (is_receive(action.op)) {
      return std::max(now_, world_->arrivals.at(message_of(rank_, action))) + overhead;
    }
    const CollectiveSeconds& collective = *world_->collective_seconds;
    if (action.op == Op::kFetchWeights) start(action.layers, collective.fetch, weights_at_);
    if (action.op == Op::kReduceGradients) start(action.layers, collective.reduce, gradients_at_);
    if (action.op == Op::kAwaitGradients) {
      return latest(action.layers, gradients_at_, now_) + overhead;
    }
    if (action.op == Op::kGatherWeights) {
      return std::max(now_, channel_free_) + gather_seconds(action.layers) + overhead;
    }
    if (action.op == Op::kUpdate) return now_ + update_seconds(action.layers) + overhead;
    if (action.op != Op::kReduceNorm) return now_ + overhead;
    double last = now_;
    for (const auto& [rank, seconds] : world_->collectives[left_]) last = std::max(last, seconds);
    ++left_;
    return last + overhead;
  }

  double compute_seconds(const Action& action) const {
    double seconds = 0;
    for (int l = action.layers.begin; l < action.layers.end; ++l) {
      const LayerCost& layer = world_->costs->layers[l];
      seconds += action.op == Op::kBackward ? layer.backward_seconds : layer.forward_seconds;
    }
    return seconds * world_->costs->scale(action.micro_batch);
  }

  double update_seconds(LayerRange layers) const {
    double seconds = 0;
    for (int l = layers.begin; l < layers.end; ++l)
      seconds += world_->costs->layers[l].update_seconds;
    return seconds;
  }

  double gather_seconds(LayerRange layers) const {
    const std::vector<double>& gather = world_->collective_seconds->gather;
    double seconds = 0;
    for (int l = layers.begin; !gather.empty() && l < layers.end; ++l) seconds += gather[l];
    return seconds;
  }

  double transfer_seconds(const Action& action) const {
    const CostTable& costs = *world_->costs;
    if (action.op == Op::kSendTiedGradient || action.op == Op::kSendTiedWeight) {
      return world_->tie_seconds_per_byte * costs.layers[action.consumer].replica_bytes;
    }
    return costs.values[action.value].transfer_seconds * costs.scale(action.micro_batch);
  }

  int rank_;
  World* world_;
  double now_ = 0;
  double channel_free_ = 0;             // when the last started collective of replicas ends
  std::map<int, double> weights_at_;    // per fetched layer
  std::map<int, double> gradients_at_;  // per reduced layer
  std::size_t left_ = 0;                // collectives behind this rank
  RankTimeline timeline_;
};

World make_world(const Schedule& schedule, const CostTable& costs,
                 const CollectiveSeconds& collectives) {
  World world{
      .costs = &costs, .num_ranks = schedule.num_ranks(), .collective_seconds = &collectives};
  double seconds = 0;
  double bytes = 0;
  for (const ValueCost& value : costs.values) {
    seconds += value.transfer_seconds;
    bytes += static_cast<double>(value.bytes);
  }
  if (bytes > 0) world.tie_seconds_per_byte = seconds / bytes;
  return world;
}

// Round-robin until all programs are at their end; appends what was performed to `order`.
void run(const Schedule& schedule, std::vector<Clock>& clocks, std::vector<ActionRef>& order) {
  std::vector<Execution> executions;
  for (int r = 0; r < schedule.num_ranks(); ++r) {
    executions.emplace_back(schedule.programs[r], clocks[r]);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < schedule.num_ranks(); ++r) {
      const int start = static_cast<int>(executions[r].position());
      moved |= executions[r].advance();
      const int end = static_cast<int>(executions[r].position());
      for (int i = start; i < end; ++i) order.push_back({r, i});
    }
  }
  for (int r = 0; r < schedule.num_ranks(); ++r) {
    if (executions[r].done()) continue;
    throw InternalError({.operation = "plan.simulate",
                         .where = "rank " + std::to_string(r) + ", position " +
                                  std::to_string(executions[r].position()),
                         .what = "the action waits for ever",
                         .expected = "a schedule that validate() accepts",
                         .got = to_string(schedule.programs[r][executions[r].position()]),
                         .fix = "validate the schedule first"});
  }
}

// Actions of the same instant stay in the order in which they were performed: messages are sent
// before they are received.
void sort_by_time(const Schedule& schedule, Simulation& simulation) {
  std::multimap<double, ActionRef> by_time;
  for (const ActionRef& ref : simulation.order) {
    const TraceEvent& event = simulation.ranks[ref.rank].events[ref.position];
    const bool receive = is_receive(schedule.programs[ref.rank][ref.position].op);
    by_time.emplace(receive ? event.end_seconds : event.begin_seconds, ref);
  }
  simulation.order.clear();
  for (const auto& [seconds, ref] : by_time) simulation.order.push_back(ref);
}

}  // namespace

Simulation simulate(const Schedule& schedule, const Wiring& wiring, const Partition& partition,
                    const CostTable& costs, const CollectiveSeconds& collectives) {
  STRATA_CHECK_EQ(costs.layers.size(), static_cast<std::size_t>(wiring.num_layers),
                  "plan.simulate");
  STRATA_CHECK_EQ(costs.values.size(), wiring.values.size(), "plan.simulate");
  STRATA_CHECK_EQ(partition.num_stages(), schedule.num_stages(), "plan.simulate");
  World world = make_world(schedule, costs, collectives);
  std::vector<Clock> clocks;
  for (int r = 0; r < schedule.num_ranks(); ++r) clocks.emplace_back(r, world);

  Simulation simulation;
  run(schedule, clocks, simulation.order);
  double busy = 0;
  for (const Clock& clock : clocks) {
    simulation.step_seconds = std::max(simulation.step_seconds, clock.now());
  }
  for (Clock& clock : clocks) {
    RankTimeline timeline = clock.take_timeline();
    timeline.idle_seconds = simulation.step_seconds - timeline.busy_seconds;
    busy += timeline.busy_seconds;
    simulation.ranks.push_back(std::move(timeline));
  }
  if (simulation.step_seconds > 0) {
    simulation.bubble = 1 - busy / (schedule.num_ranks() * simulation.step_seconds);
  }

  sort_by_time(schedule, simulation);
  return simulation;
}

}  // namespace strata
