// Ranks advance in turn, each as far as it can. A rank's clock depends on others only through the
// arrival of messages and the last rank of a collective, so the order of turns changes nothing.
// Replicas are one rank here; their exchanges take time on a channel that overlaps with compute.
//
// What the host still has to do when a step ends delays the next step. All of it ends by the end of
// the next forward, which waits for every update, so the second of two steps equals all later ones.
#include "strata/plan/simulate/simulator.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

#include "strata/base/errors.h"
#include "strata/plan/simulate/rank_clock.h"
#include "strata/plan/simulate/shared_clock.h"
#include "strata/schedule/execute.h"

namespace strata {
namespace {

// Advances ranks round robin until all programs end; appends performed actions to `order`. If ranks
// share devices, the order matters: of the ready ranks, the one whose host has enqueued least runs
// one action.
void run(const Schedule& schedule, bool share_devices, std::vector<RankClock>& clocks,
         std::vector<ActionRef>& order) {
  std::vector<Execution> executions;
  for (int r = 0; r < schedule.num_ranks(); ++r) {
    executions.emplace_back(schedule.programs[r], clocks[r]);
  }
  std::vector<int> turns(schedule.num_ranks());
  std::iota(turns.begin(), turns.end(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    if (share_devices)
      std::ranges::sort(turns, {}, [&](int r) { return std::pair(clocks[r].enqueued(), r); });
    for (const int r : turns) {
      const int start = static_cast<int>(executions[r].position());
      moved |= share_devices ? executions[r].step() : executions[r].advance();
      const int end = static_cast<int>(executions[r].position());
      for (int i = start; i < end; ++i) order.push_back({r, i});
      if (share_devices && moved) break;
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

// Actions of the same time keep the order in which they were performed: a message is sent before it
// is received. Those of one rank are already sorted, so ranks are merged.
void sort_by_time(const Schedule& schedule, Simulation& simulation) {
  using Timed = std::pair<double, std::size_t>;  // and index in `performed`
  const std::vector<ActionRef> performed = simulation.order;
  std::vector<std::vector<Timed>> parts(schedule.num_ranks());
  for (std::size_t i = 0; i < performed.size(); ++i) {
    const auto [rank, position] = performed[i];
    const TraceEvent& event = simulation.ranks[rank].events[position];
    const bool receive = is_receive(schedule.programs[rank][position].op);
    parts[rank].emplace_back(receive ? event.end_seconds : event.begin_seconds, i);
  }
  while (parts.size() > 1) {
    std::vector<std::vector<Timed>> merged((parts.size() + 1) / 2);
    for (std::size_t i = 0; i + 1 < parts.size(); i += 2)
      std::ranges::merge(parts[i], parts[i + 1], std::back_inserter(merged[i / 2]));
    if (parts.size() % 2 == 1) merged.back() = std::move(parts.back());
    parts = std::move(merged);
  }
  for (std::size_t i = 0; i < performed.size(); ++i)
    simulation.order[i] = performed[parts[0][i].second];
}

// The wait for embeddings if all steps take equally long. The embeddings of a step were requested
// `staleness` steps earlier and have those steps to arrive; what a step does after the last
// backward of the reading layer hides some of the wait, too. However early they are requested,
// producing them takes its time in every step, and if all threads share too few processors, theirs,
// too.
double rows_wait(const CostTable& costs, const Simulation& step) {
  const RowsCost& rows = costs.rows;
  double hidden = rows.staleness * step.step_seconds;
  double used = rows.work_seconds;
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

// Simulates one step after another one, with the work that the first left unfinished.
Simulation simulate_step(const Schedule& schedule, SharedClock shared,
                         std::vector<TierClockState>& states) {
  std::vector<RankClock> clocks;
  for (int r = 0; r < schedule.num_ranks(); ++r) clocks.emplace_back(r, shared, states[r]);

  Simulation simulation;
  run(schedule, !shared.costs->devices.empty(), clocks, simulation.order);
  double busy = 0;
  for (const RankClock& clock : clocks) {
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

std::vector<TraceEvent> row_of(const RankTimeline& rank) {
  std::vector<TraceEvent> row;
  double now = 0;
  for (std::size_t i = 0; i < rank.events.size(); ++i) {
    const TraceEvent& event = rank.events[i];
    if (!rank.turns.empty()) now = std::max(now, rank.turns[i]);
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

std::vector<TrackEvent> tracks_within(const RankTimeline& rank, double step_seconds) {
  std::vector<TrackEvent> within;
  for (const double earlier : {step_seconds, 0.0}) {
    for (TrackEvent event : rank.tracks) {
      event.begin_seconds = std::max(0.0, event.begin_seconds - earlier);
      event.end_seconds = std::min(step_seconds, event.end_seconds - earlier);
      if (event.end_seconds > event.begin_seconds) within.push_back(event);
    }
  }
  return within;
}

Simulation simulate(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                    const CostTable& costs, const CollectiveSeconds& collectives,
                    const TierSeconds& tier_seconds, const RecordedPrograms& recorded) {
  STRATA_CHECK_EQ(costs.layers.size(), static_cast<std::size_t>(dataflow.num_layers),
                  "plan.simulate");
  STRATA_CHECK_EQ(costs.values.size(), dataflow.values.size(), "plan.simulate");
  STRATA_CHECK_EQ(partition.num_stages(), schedule.num_stages(), "plan.simulate");
  STRATA_CHECK(recorded.empty() || std::ssize(recorded) == schedule.num_ranks(), "plan.simulate");
  SharedClock shared =
      make_shared_clock(schedule, dataflow, costs, collectives, tier_seconds, recorded);
  std::vector<TierClockState> states(schedule.num_ranks());
  Simulation simulation = simulate_step(schedule, shared, states);
  shared.rows_wait_seconds = rows_wait(costs, simulation);
  if (!tier_seconds.empty() || shared.rows_wait_seconds > 0)
    simulation = simulate_step(schedule, shared, states);
  sort_by_time(schedule, simulation);
  return simulation;
}

}  // namespace strata
