// Ranks are advanced in turn, each as far as it gets: a rank's clock depends on others only through the
// arrivals of messages and the last comer of a collective, so that the order of turns changes nothing.
// Replicas are one rank here; what they exchange takes its time on a channel beside the compute.
//
// What the host still has to do when a step ends delays the next one. All of it is done by the end of the
// next forward, which waits for every update, so the second of two steps is like all that follow.
#include "strata/plan/simulator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/schedule/execute.h"
#include "strata/schedule/messages.h"

namespace strata {
namespace {

struct MessageHash {
  std::size_t operator()(const MessageKey& message) const {
    std::uint64_t hash = 0;
    for (const int part : message) hash = mix_key(hash, static_cast<std::uint64_t>(part));
    return hash;
  }
};

// Seconds of ranges of layers. A range of many layers recurs with every micro-batch and is summed
// once, in layer order.
class ComputeSeconds {
 public:
  explicit ComputeSeconds(const CostTable& costs) : layers_(costs.layers) {}

  double operator()(LayerRange range, bool backward) {
    if (range.size() == 1) return sum(range, backward);
    const std::uint64_t key = (static_cast<std::uint64_t>(range.begin) << 32) | range.end;
    auto& seconds = known_[backward];
    const auto [known, is_new] = seconds.try_emplace(key, 0.0);
    if (is_new) known->second = sum(range, backward);
    return known->second;
  }

 private:
  double sum(LayerRange range, bool backward) const {
    double seconds = 0;
    for (int l = range.begin; l < range.end; ++l) {
      seconds += backward ? layers_[l].backward_seconds : layers_[l].forward_seconds;
    }
    return seconds;
  }

  const std::vector<LayerCost>& layers_;
  std::array<std::unordered_map<std::uint64_t, double>, 2> known_;
};

// A message on its way.
struct Arrival {
  double given = 0;  // by its sender's host
  double sent = 0;   // by its sender's device
  double seconds = 0;
};

// A collective of all ranks: how many have come, and when the last one did.
struct Collective {
  int ranks = 0;
  double last_seconds = 0;
};

// What the clocks have in common.
struct SharedClock {
  const CostTable* costs = nullptr;
  int num_ranks = 0;
  double tie_seconds_per_byte = 0;
  const CollectiveSeconds* collective_seconds = nullptr;
  const LaneSeconds* lanes = nullptr;
  std::vector<std::vector<int>> owners;  // per layer: of the tied weights it uses; empty: none
  const Dataflow* dataflow = nullptr;
  double rows_wait_seconds = 0;
  ComputeSeconds layer_seconds;
  const RecordedPrograms* recorded = nullptr;
  std::unordered_map<MessageKey, Arrival, MessageHash> arrivals;
  std::vector<Collective> collectives;
};

constexpr int kUpdateSlabs = 3;  // of disk/staging.h: one is read, one updated, one written

// What one step leaves behind for the next, in seconds of its own clock.
struct LaneState {
  std::array<double, kNumLaneKinds> free{};  // per lane: when it has done what it was given
  std::array<double, kUpdateSlabs> slabs{};  // of updates from disk: when each is free
  std::vector<double> weights_at;            // per layer, 0: not fetched; empty: none is
  std::vector<double> updated_at;            // per layer: its update on the host

  // Seen from a step that begins then.
  LaneState after(double seconds) const {
    LaneState state = *this;
    const auto shift = [&](double& at) { at = std::max(0.0, at - seconds); };
    for (double& at : state.free) shift(at);
    for (double& at : state.slabs) shift(at);
    for (double& at : state.weights_at) shift(at);
    for (double& at : state.updated_at) shift(at);
    return state;
  }
};

// A rank whose work is to let time pass.
class Clock : public Machine {
 public:
  Clock(int rank, SharedClock& shared, LaneState state)
      : rank_(rank), shared_(&shared), state_(std::move(state)) {}

  bool ready(const Action& action) override {
    if (is_receive(action.op)) return shared_->arrivals.count(message_key(action, rank_)) != 0;
    if (action.op != Op::kReduceNormAndLoss) return true;
    if (shared_->collectives.size() == left_) shared_->collectives.emplace_back();
    Collective& collective = shared_->collectives[left_];
    if (came_ == left_) {
      ++came_;
      ++collective.ranks;
      wait_for_offloads();  // the norm is that of the gradients where they are updated
      collective.last_seconds = std::max(collective.last_seconds, now_);
    }
    return collective.ranks == shared_->num_ranks;
  }

  void perform(const Action& action) override {
    if (is_compute(action.op)) wait_for_weights(action.layers);
    if (action.op == Op::kRecompute) wait_for_inputs(action);
    const double begin = now_;
    if (is_receive(action.op)) await(action);
    now_ = end_of(action);
    const double worked = now_ - begin;
    if (is_given()) behind_host(action, begin);
    timeline_.events.push_back(event_of(action, begin));
    timeline_.events.back().end_seconds = now_;
    if (is_compute(action.op) || action.op == Op::kUpdate) timeline_.busy_seconds += worked;
    if (is_send(action.op)) {
      shared_->arrivals[message_key(action, rank_)] = {host_, now_,
                                                       now_ + transfer_seconds(action)};
    }
  }

  double now() const { return now_; }
  const LaneState& state() const { return state_; }
  RankTimeline take_timeline() { return std::move(timeline_); }

 private:
  bool is_given() const { return shared_->costs->launch.kernel > 0; }

  // Of an action that began then and would end now: when it does, given that the host has to give it first.
  void behind_host(const Action& action, double begin) {
    const int kernels = launches(action);
    if (kernels == 0) return;
    const double work = now_ - begin;
    if (const Segment* segment = recorded_at(timeline_.events.size())) {
      if (timeline_.events.size() == segment->begin) host_ += shared_->costs->launch.segment;
      now_ = std::max(begin, host_) + work;
    } else {
      const double first = host_ + shared_->costs->launch.kernel;
      host_ += kernels * shared_->costs->launch.kernel;
      now_ = std::max(std::max(begin, first) + work, host_ + work / kernels);
    }
    timeline_.launch_wait_seconds += now_ - begin - work;
    add_lane(LaneKind::kCompute, action.layers.begin, now_ - work, now_);
  }

  int launches(const Action& action) const {
    int kernels = 0;
    for (int l = action.layers.begin; l < action.layers.end; ++l)
      if (action.op != Op::kUpdate || lanes_of(l) == nullptr)
        kernels += launches_of(shared_->costs->layers[l], action.op);
    return kernels;
  }

  // Of the action at a place of the program, which only moves on; null: it is performed.
  const Segment* recorded_at(std::size_t position) {
    if (shared_->recorded->empty()) return nullptr;
    const std::vector<Segment>& segments = (*shared_->recorded)[rank_];
    while (segment_ < segments.size() && position >= segments[segment_].end) ++segment_;
    const bool within = segment_ < segments.size() && position >= segments[segment_].begin;
    return within ? &segments[segment_] : nullptr;
  }

  // The host waits until it knows of the message, the device until it is there.
  void await(const Action& action) {
    const Arrival& arrival = shared_->arrivals.at(message_key(action, rank_));
    host_ = std::max(host_, arrival.given);
    if (is_given())
      add_lane(LaneKind::kCommunicate, action.consumer, arrival.sent, arrival.seconds);
  }

  void add_lane(LaneKind lane, int layer, double begin, double end) {
    if (end > begin) timeline_.lanes.push_back({lane, layer, begin, end});
  }

  // Behind what the channel still has to do.
  double exchange(int layer, const std::vector<double>& seconds, double from) {
    const double begin = std::max(channel_free_, from);
    channel_free_ = begin + (seconds.empty() ? 0 : seconds[layer]);
    if (is_given()) add_lane(LaneKind::kCommunicate, layer, begin, channel_free_);
    return channel_free_;
  }

  // Behind what the lane still has to do.
  double run(LaneKind lane, int layer, double from, double seconds) {
    double& free = state_.free[static_cast<int>(lane)];
    const double begin = std::max(free, from);
    free = begin + seconds;
    timeline_.lanes.push_back({lane, layer, begin, free});
    return free;
  }

  const LayerLanes* lanes_of(int layer) const {
    const LaneSeconds& lanes = *shared_->lanes;
    return lanes.empty() || !lanes[layer].updates_on_host ? nullptr : &lanes[layer];
  }

  double& of_layer(std::vector<double>& ends, int layer) const {
    if (ends.empty()) ends.resize(shared_->costs->layers.size());
    return ends[layer];
  }

  static double latest(LayerRange layers, const std::vector<double>& ends, double now) {
    if (ends.empty()) return now;
    for (int l = layers.begin; l < layers.end; ++l) now = std::max(now, ends[l]);
    return now;
  }

  void wait_for_weights(LayerRange layers) {
    const double begin = now_;
    now_ = latest(layers, state_.weights_at, now_);
    if (!shared_->owners.empty()) {
      for (int l = layers.begin; l < layers.end; ++l)
        for (const int owner : shared_->owners[l])
          now_ = latest({owner, owner + 1}, state_.weights_at, now_);
    }
    timeline_.fetch_wait_seconds += now_ - begin;
  }

  // Those that are on their way back from the host.
  void wait_for_inputs(const Action& action) {
    const double begin = now_;
    for (int l = action.layers.begin; l < action.layers.end; ++l)
      if (const auto at = inputs_at_.find({l, action.micro_batch}); at != inputs_at_.end())
        now_ = std::max(now_, at->second);
    timeline_.fetch_wait_seconds += now_ - begin;
  }

  // There and back: each waits for the offload before.
  void move_activations(const Action& action) {
    const int layer = action.layers.begin;
    const bool leave = action.op == Op::kOffloadActivations;
    const double begin = now_, scale = shared_->costs->scale(action.micro_batch);
    now_ = std::max(now_, activations_end_);
    timeline_.offload_wait_seconds += now_ - begin;
    if (shared_->lanes->empty()) return;
    const LayerLanes& lanes = (*shared_->lanes)[layer];
    if (leave) {
      activations_end_ =
          run(LaneKind::kToHost, layer, now_, lanes.activations_offload_seconds * scale);
    } else {
      inputs_at_[{layer, action.micro_batch}] =
          run(LaneKind::kToDevice, layer, now_, lanes.activations_fetch_seconds * scale);
    }
  }

  void wait_for_offloads() {
    const double begin = now_;
    now_ = std::max(now_, offloads_end_);
    timeline_.offload_wait_seconds += now_ - begin;
  }

  void fetch(int layer) {
    const std::vector<double>& exchanged = shared_->collective_seconds->fetch;
    const LayerLanes* lanes = lanes_of(layer);
    double& at = of_layer(state_.weights_at, layer);
    if (lanes == nullptr) {
      at = exchange(layer, exchanged, now_);
      return;
    }
    double from = std::max(now_, of_layer(state_.updated_at, layer));
    if (lanes->fetch_read_seconds > 0)
      from = run(LaneKind::kDiskRead, layer, from, lanes->fetch_read_seconds);
    if (!lanes->comes_back) from = run(LaneKind::kToDevice, layer, from, lanes->fetch_seconds);
    at = !exchanged.empty() && exchanged[layer] > 0 ? exchange(layer, exchanged, from) : from;
  }

  void offload(int layer, double from) {
    if (const LayerLanes* lanes = lanes_of(layer)) {
      const std::size_t buffers = lanes->gradient_buffers;
      if (buffers > 0 && updated_early_.size() >= buffers)
        from = std::max(from, state_.updated_at[updated_early_[updated_early_.size() - buffers]]);
      offloads_end_ = run(LaneKind::kToHost, layer, from, lanes->offload_seconds);
      of_layer(landed_at_, layer) = offloads_end_;
    }
  }

  // The seconds that it takes of the rank's own clock.
  double update(int layer) {
    const LayerLanes* lanes = lanes_of(layer);
    if (lanes == nullptr) return shared_->costs->layers[layer].update_seconds;
    if (came_ == 0) updated_early_.push_back(layer);
    double& at = of_layer(state_.updated_at, layer);
    const double ready = std::max(now_, of_layer(landed_at_, layer));
    if (lanes->update_write_seconds > 0) {
      double& slab = *std::min_element(state_.slabs.begin(), state_.slabs.end());
      const double read =
          run(LaneKind::kDiskRead, layer, std::max(now_, slab), lanes->update_read_seconds);
      at = run(LaneKind::kUpdate, layer, std::max(ready, read), lanes->update_seconds);
      slab = run(LaneKind::kDiskWrite, layer, at, lanes->update_write_seconds);
      if (lanes->weights_on_disk) at = slab;
    } else {
      at = run(LaneKind::kUpdate, layer, ready, lanes->update_seconds);
    }
    if (lanes->comes_back) at = run(LaneKind::kToDevice, layer, at, lanes->fetch_seconds);
    return 0;
  }

  double gather(LayerRange layers) {
    const std::vector<double>& gather = shared_->collective_seconds->gather;
    double seconds = 0;
    for (int l = layers.begin; !gather.empty() && l < layers.end; ++l) seconds += gather[l];
    const double begin = std::max(latest(layers, state_.updated_at, now_), channel_free_);
    const double end = begin + seconds;
    if (is_given()) add_lane(LaneKind::kCommunicate, layers.begin, begin, end);
    for (int l = layers.begin; l < layers.end; ++l)
      if (lanes_of(l) != nullptr) of_layer(state_.updated_at, l) = end;
    return end;
  }

  double end_of(const Action& action) {
    const double overhead = shared_->costs->overhead_seconds;
    if (is_compute(action.op)) return now_ + compute_seconds(action) + overhead;
    if (is_receive(action.op)) {
      return std::max(now_, shared_->arrivals.at(message_key(action, rank_)).seconds) + overhead;
    }
    const auto [begin, end] = action.layers;
    double seconds = 0;
    switch (action.op) {
      case Op::kPrefetchWeights:
        for (int l = begin; l < end; ++l) fetch(l);
        break;
      case Op::kOffloadActivations:
      case Op::kFetchActivations:
        move_activations(action);
        break;
      case Op::kReduceGradients:
        for (int l = begin; l < end; ++l)
          of_layer(reduced_at_, l) = exchange(l, shared_->collective_seconds->reduce, now_);
        break;
      case Op::kAwaitGradients:  // where they live
        now_ = latest(action.layers, reduced_at_, now_);
        for (int l = begin; l < end; ++l) offload(l, now_);
        break;
      case Op::kOffloadGradients:
        wait_for_offloads();
        for (int l = begin; l < end; ++l) offload(l, now_);
        break;
      case Op::kGatherWeights:
        return gather(action.layers) + overhead;
      case Op::kUpdate:
        for (int l = begin; l < end; ++l) seconds += update(l);
        break;
      case Op::kSendTiedWeight: {
        const int owner = shared_->dataflow->ties[action.value].owner;
        now_ = latest({owner, owner + 1}, state_.weights_at, now_);
        break;
      }
      case Op::kFetchRows:
        seconds = shared_->costs->rows.rank_seconds + shared_->rows_wait_seconds;
        break;
      case Op::kReduceNormAndLoss:
        return shared_->collectives[left_++].last_seconds + overhead;
      default:
        break;
    }
    return now_ + seconds + overhead;
  }

  double compute_seconds(const Action& action) const {
    return shared_->layer_seconds(action.layers, action.op == Op::kBackward) *
           shared_->costs->scale(action.micro_batch);
  }

  double transfer_seconds(const Action& action) const {
    const CostTable& costs = *shared_->costs;
    if (action.op == Op::kSendTiedGradient || action.op == Op::kSendTiedWeight) {
      return shared_->tie_seconds_per_byte * costs.layers[action.consumer].replica_bytes;
    }
    return costs.values[action.value].transfer_seconds * costs.scale(action.micro_batch);
  }

  int rank_;
  SharedClock* shared_;
  double now_ = 0;           // of a device that is given its work: its own clock
  double host_ = 0;          // and its host's: when it has given all until here
  std::size_t segment_ = 0;  // recorded: the last one that was not behind
  LaneState state_;
  double channel_free_ = 0;     // when the last started collective of replicas ends
  double offloads_end_ = 0;     // of those that have been started
  double activations_end_ = 0;  // of the last one's way to the host
  std::map<std::pair<int, int>, double> inputs_at_;  // (layer, micro-batch), back from the host
  std::vector<double> reduced_at_;                   // per layer, 0: not reduced; empty: none is
  std::vector<double> landed_at_;                    // per layer: its gradient, on the host
  std::vector<int> updated_early_;                   // layers, before the norm
  std::size_t came_ = 0, left_ = 0;                  // collectives of all ranks
  RankTimeline timeline_;
};

SharedClock make_shared_clock(const Schedule& schedule, const Dataflow& dataflow,
                              const CostTable& costs, const CollectiveSeconds& collectives,
                              const LaneSeconds& lanes, const RecordedPrograms& recorded) {
  SharedClock shared{.costs = &costs,
                     .num_ranks = schedule.num_ranks(),
                     .collective_seconds = &collectives,
                     .lanes = &lanes,
                     .dataflow = &dataflow,
                     .layer_seconds = ComputeSeconds(costs),
                     .recorded = &recorded};
  if (!dataflow.ties.empty()) shared.owners.resize(dataflow.num_layers);
  for (const Tie& tie : dataflow.ties)
    for (const int user : tie.users) shared.owners[user].push_back(tie.owner);
  double seconds = 0;
  double bytes = 0;
  for (const ValueCost& value : costs.values) {
    seconds += value.transfer_seconds;
    bytes += static_cast<double>(value.bytes);
  }
  if (bytes > 0) shared.tie_seconds_per_byte = seconds / bytes;
  return shared;
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
  const std::vector<ActionRef> performed = simulation.order;
  std::vector<std::pair<double, std::size_t>> by_time;  // and position in `performed`
  by_time.reserve(performed.size());
  for (const ActionRef& ref : performed) {
    const TraceEvent& event = simulation.ranks[ref.rank].events[ref.position];
    const bool receive = is_receive(schedule.programs[ref.rank][ref.position].op);
    by_time.emplace_back(receive ? event.end_seconds : event.begin_seconds, by_time.size());
  }
  std::sort(by_time.begin(), by_time.end());
  for (std::size_t i = 0; i < by_time.size(); ++i) {
    simulation.order[i] = performed[by_time[i].second];
  }
}

// Of steps that all take equally long. The rows of a step were asked for `staleness` steps before it
// and have those steps to come, each of which waits in turn; what a step does behind the last backward of
// the layer that reads them hides some of it, too. However early rows are asked for, what makes them needs
// its time in every step, and where all of it shares too few processors, theirs.
double rows_wait(const CostTable& costs, const Simulation& step) {
  const RowsCost& rows = costs.rows;
  double hidden = rows.staleness * step.step_seconds;
  double used = rows.beside_seconds;
  for (const RankTimeline& rank : step.ranks) {
    used += rows.rank_threads * rank.busy_seconds;
    for (const TraceEvent& event : rank.events) {
      if (event.op == Op::kSendRowGradients) hidden += step.step_seconds - event.end_seconds;
      if (event.op == Op::kFetchRows) used += event.end_seconds - event.begin_seconds;
    }
  }
  double least = rows.beside_seconds;
  if (rows.processors > 0) least = std::max(least, used / rows.processors);
  return std::max(
      {0.0, (rows.wait_seconds - hidden) / (rows.staleness + 1), least - step.step_seconds});
}

// One step behind what another has left on the ranks' lanes.
Simulation simulate_step(const Schedule& schedule, SharedClock shared,
                         std::vector<LaneState>& states) {
  std::vector<Clock> clocks;
  for (int r = 0; r < schedule.num_ranks(); ++r) clocks.emplace_back(r, shared, states[r]);

  Simulation simulation;
  run(schedule, clocks, simulation.order);
  double busy = 0;
  for (const Clock& clock : clocks) {
    simulation.step_seconds = std::max(simulation.step_seconds, clock.now());
  }
  for (int r = 0; r < schedule.num_ranks(); ++r) {
    states[r] = clocks[r].state().after(simulation.step_seconds);
    RankTimeline timeline = clocks[r].take_timeline();
    timeline.idle_seconds = simulation.step_seconds - timeline.busy_seconds;
    busy += timeline.busy_seconds;
    simulation.ranks.push_back(std::move(timeline));
  }
  if (simulation.step_seconds > 0) {
    simulation.bubble = 1 - busy / (schedule.num_ranks() * simulation.step_seconds);
  }
  return simulation;
}

}  // namespace

int launches_of(const LayerCost& layer, Op op) {
  switch (op) {
    case Op::kForward:
    case Op::kRecompute:
      return layer.forward_launches;
    case Op::kBackward:
      return layer.backward_launches;
    case Op::kUpdate:
      return layer.update_launches;
    default:
      return 0;
  }
}

std::vector<TraceEvent> row_of(const RankTimeline& rank) {
  std::vector<TraceEvent> row;
  double now = 0;
  for (const TraceEvent& event : rank.events) {
    if (event.begin_seconds > now) {
      TraceEvent wait = event;
      wait.op = is_compute(event.op) ? Op::kPrefetchWeights : Op::kOffloadGradients;
      wait.begin_seconds = now;
      wait.end_seconds = event.begin_seconds;
      row.push_back(wait);
    }
    row.push_back(event);
    now = event.end_seconds;
  }
  return row;
}

std::vector<LaneEvent> lanes_within(const RankTimeline& rank, double step_seconds) {
  std::vector<LaneEvent> within;
  for (const double earlier : {step_seconds, 0.0}) {
    for (LaneEvent event : rank.lanes) {
      event.begin_seconds = std::max(0.0, event.begin_seconds - earlier);
      event.end_seconds = std::min(step_seconds, event.end_seconds - earlier);
      if (event.end_seconds > event.begin_seconds) within.push_back(event);
    }
  }
  return within;
}

Simulation simulate(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                    const CostTable& costs, const CollectiveSeconds& collectives,
                    const LaneSeconds& lanes, const RecordedPrograms& recorded) {
  STRATA_CHECK_EQ(costs.layers.size(), static_cast<std::size_t>(dataflow.num_layers),
                  "plan.simulate");
  STRATA_CHECK_EQ(costs.values.size(), dataflow.values.size(), "plan.simulate");
  STRATA_CHECK_EQ(partition.num_stages(), schedule.num_stages(), "plan.simulate");
  STRATA_CHECK(recorded.empty() || std::ssize(recorded) == schedule.num_ranks(), "plan.simulate");
  SharedClock shared = make_shared_clock(schedule, dataflow, costs, collectives, lanes, recorded);
  std::vector<LaneState> states(schedule.num_ranks());
  Simulation simulation = simulate_step(schedule, shared, states);
  shared.rows_wait_seconds = rows_wait(costs, simulation);
  if (!lanes.empty() || shared.rows_wait_seconds > 0)
    simulation = simulate_step(schedule, shared, states);
  sort_by_time(schedule, simulation);
  return simulation;
}

}  // namespace strata
