// Compares steps with layers that the host updates with closed formulas.
#include "strata/plan/simulate/tier_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "strata/plan/example_models_test.h"
#include "strata/plan/search/planner.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"

namespace strata {
namespace {

constexpr LayerTiers kAllAway{Tier::kHost, Tier::kHost, Tier::kHost};
constexpr LayerTiers kStatesAway{Tier::kDevice, Tier::kHost, Tier::kHost};

// Equal layers on one rank, with the seconds of a layer's forward, backward, fetch, offload and
// update.
struct Streamed {
  int layers = 8;
  double forward = 1, backward = 2, fetch = 0, offload = 0, update = 0;
  int window = 1;
  bool at_once = false;
  int buffers = 0;
  LayerTiers tiers = kAllAway;
  int micro_batches = 1;
  double fetch_read = 0, update_read = 0, update_write = 0, gradient_write = 0;
  Dataflow dataflow = {};

  Schedule schedule() {
    dataflow = chain(layers);
    const TierLayout layout{.layers = std::vector(layers, tiers),
                            .window = window,
                            .updates_at_once = at_once,
                            .gradient_buffers = buffers};
    return lower(build_schedule(ScheduleKind::kGpipe, {1, micro_batches}), dataflow, {{0, layers}},
                 {.tiers = layout});
  }
  Simulation run() {
    const Schedule lowered = schedule();
    const CostTable costs =
        equal_costs(dataflow, {.forward_seconds = forward, .backward_seconds = backward});
    const TierSeconds seconds(layers, {.updates_on_host = true,
                                       .fetch_seconds = fetch,
                                       .offload_seconds = offload,
                                       .update_seconds = update,
                                       .fetch_read_seconds = fetch_read,
                                       .update_read_seconds = update_read,
                                       .update_write_seconds = update_write,
                                       .gradient_write_seconds = gradient_write,
                                       .weights_on_disk = fetch_read > 0,
                                       .gradient_buffers = buffers});
    return simulate(lowered, dataflow, {{0, layers}}, costs, {}, seconds);
  }
  double step() { return run().step_seconds; }
  double compute() const { return layers * (forward + backward); }
};

TEST(TierSimulation, WindowOfOneAddsTransferTimes) {
  // The layer between forward and backward stays: compute waits for each of 2 L - 1 fetches.
  Streamed s{.fetch = 3};
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 15 * 3);
  s.offload = 0.5;  // overlaps with the next layer's fetch; the last one is exposed
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 15 * 3 + 0.5);
  s.update = 0.25;  // one by one, overlapping with the next forward; the first one is exposed
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 15 * 3 + 0.5 + 0.25);
}

TEST(TierSimulation, HiddenTransfersTakeNoTime) {
  for (const int window : {2, 3, 8}) {
    Streamed s{.fetch = 1, .offload = 2, .update = 1, .window = window};
    // The first or the last of each kind is exposed: layer 0 is needed first and completed last.
    EXPECT_DOUBLE_EQ(s.step(), s.compute() + 1 + 2 + 1) << window;
    EXPECT_DOUBLE_EQ(s.run().ranks[0].fetch_wait_seconds, 2) << window;
    EXPECT_DOUBLE_EQ(s.run().ranks[0].offload_wait_seconds, 2) << window;
  }
}

TEST(TierSimulation, SlowLinkDeterminesStep) {
  for (const int window : {2, 3, 4}) {
    Streamed s{.fetch = 10, .offload = 0.5, .update = 0.5, .window = window};
    const Schedule schedule = s.schedule();
    const TierTraffic moved =
        tier_traffic(schedule.programs[0], equal_costs(s.dataflow, {}), std::vector<ShardBytes>(8),
                     {}, {.layers = std::vector(8, kAllAway)});
    const double link = 10.0 * static_cast<double>(moved.fetches);
    EXPECT_GE(s.step(), link) << window;
    // In addition: compute of the window between forward and backward and at the end, the last
    // offload, the first update.
    EXPECT_LE(s.step(), link + window * 3 + 1) << window;
  }
  Streamed gradients{.offload = 5, .window = 8};
  EXPECT_DOUBLE_EQ(gradients.step(), 8 + 2 + 8 * 5);
}

TEST(TierSimulation, SlowOptimizerDeterminesStep) {
  // At once: from the first gradient on the update executor is always busy; the next forward waits
  // for the last update.
  Streamed at_once{.fetch = 0.5, .offload = 0.25, .update = 4, .window = 8, .at_once = true};
  EXPECT_DOUBLE_EQ(at_once.step(), 8 + 2 + 0.25 + 8 * 4 + 0.5);
  // A gradient that waits for the previous buffer reaches the host only then.
  at_once.buffers = 1;
  EXPECT_DOUBLE_EQ(at_once.step(), 8 + 2 + 8 * (0.25 + 4) + 0.5);
  at_once.buffers = 2;
  EXPECT_DOUBLE_EQ(at_once.step(), 8 + 2 + 0.25 + 8 * 4 + 0.5);
  // After the norm: each forward waits for its layer's update.
  Streamed in_time = at_once;
  in_time.at_once = false;
  EXPECT_DOUBLE_EQ(in_time.step(), 8 * 4 + 0.5 + 1 + 16 + 0.25);
}

TEST(TierSimulation, FastUpdatesOverlapWithBackwardOrNextForward) {
  Streamed s{.update = 1.5, .window = 8, .at_once = true};
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 1.5);  // backward takes 2 per layer
  s.at_once = false;
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 1.5 + 7 * 0.5);  // forward takes 1 per layer
}

TEST(TierSimulation, ResidentWeightsReturnAfterTheirUpdate) {
  Streamed s{.fetch = 0.25, .update = 0.5, .tiers = kStatesAway};
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 0.25 + 0.5);
  s.fetch = 3;  // each forward waits for its layer's fetch
  EXPECT_DOUBLE_EQ(s.step(), 0.5 + 8 * 3 + 1 + 16);
}

TEST(TierSimulation, ResidentGradientsAreCopiedBeforeUpdate) {
  Streamed s{.offload = 0.5, .tiers = {Tier::kDevice, Tier::kDevice, Tier::kHost}};
  // The copies run one at a time before the norm, which reads what the update will read.
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 8 * 0.5);
}

// Each offload waits for the previous one, so at most one offloaded gradient is on the device
// with the next. Three recomputed layers: the last is recomputed at once, the inputs of the
// others are offloaded and fetched.
TEST(TierSimulation, RecomputeWaitsForItsInputs) {
  const Dataflow dataflow = chain(3);
  const TierLayout tiers{.layers = std::vector<LayerTiers>(3, {.activations = Tier::kHost})};
  const Schedule schedule = lower(build_schedule(ScheduleKind::kGpipe, {1, 1}), dataflow, {{0, 3}},
                                  {.recompute = {0, 1, 2}, .tiers = tiers, .update = false});
  const CostTable costs =
      equal_costs(dataflow, {.forward_seconds = 1, .backward_seconds = 2, .input_bytes = 100});
  const auto run = [&](double fetch, double offload) {
    const TierSeconds seconds =
        tier_seconds(costs, {}, tiers, {.to_device = 100 / fetch, .to_host = 100 / offload});
    return simulate(schedule, dataflow, {{0, 3}}, costs, {}, seconds);
  };
  EXPECT_DOUBLE_EQ(run(2, 1).step_seconds, 3 + 3 + 6);  // a fetch takes as long as the backward
  const Simulation slow = run(4, 0.5);
  EXPECT_DOUBLE_EQ(slow.step_seconds, 3 + 3 + 6 + 2 + 2);
  EXPECT_DOUBLE_EQ(slow.ranks[0].fetch_wait_seconds, 4);
  // Each offload waits for the previous one, and a fetch for the last.
  EXPECT_DOUBLE_EQ(run(1, 3).ranks[0].offload_wait_seconds, 2 + 1);
  const TierTraffic moved =
      tier_traffic(schedule.programs[0], costs, std::vector<ShardBytes>(3), {}, tiers);
  EXPECT_EQ(moved.to_device, 200);
  EXPECT_EQ(moved.to_host, 200);
}

TEST(TierSimulation, OffloadWaitsForPreviousOne) {
  Streamed s{.layers = 3, .window = 3};
  const Schedule schedule = s.schedule();
  CostTable costs = equal_costs(s.dataflow, {.forward_seconds = 1, .backward_seconds = 2});
  costs.layers[0].backward_seconds = 20;
  const TierSeconds seconds(3, {.updates_on_host = true, .offload_seconds = 10});
  // Backwards end at 5 and 7; the second offload ends at 15, and only then layer 0 starts.
  const Simulation simulation = simulate(schedule, s.dataflow, {{0, 3}}, costs, {}, seconds);
  EXPECT_DOUBLE_EQ(simulation.step_seconds, 15 + 20 + 10);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].offload_wait_seconds, 8 + 10);
}

// Work that continues after the end of a step is drawn at its begin: nothing is lost, no track has
// two events at once, and the rank's row has no gap.
void expect_one_step_of_many(const Simulation& simulation, const double* seconds) {
  double within[kNumTrackKinds] = {}, free[kNumTrackKinds] = {};
  for (const TrackEvent& event : tracks_within(simulation.ranks[0], simulation.step_seconds)) {
    const int track = static_cast<int>(event.track);
    EXPECT_GE(event.begin_seconds, free[track] - 1e-9) << name_of(event.track);
    EXPECT_LE(event.end_seconds, simulation.step_seconds);
    free[track] = event.end_seconds;
    within[track] += event.end_seconds - event.begin_seconds;
  }
  for (int track = 0; track < kNumTrackKinds; ++track)
    EXPECT_NEAR(within[track], seconds[track], 1e-9) << name_of(static_cast<TrackKind>(track));
  double now = 0, waits = 0;
  for (const TraceEvent& event : row_of(simulation.ranks[0])) {
    EXPECT_DOUBLE_EQ(event.begin_seconds, now);
    now = event.end_seconds;
    const bool wait = event.op == Op::kPrefetchWeights || event.op == Op::kOffloadGradients;
    if (wait) waits += event.end_seconds - event.begin_seconds;
  }
  EXPECT_DOUBLE_EQ(now, simulation.step_seconds);
  EXPECT_NEAR(waits,
              simulation.ranks[0].fetch_wait_seconds + simulation.ranks[0].offload_wait_seconds,
              1e-9);
}

TEST(TierSimulation, StepIsBetweenSlowestTrackAndSumOfAll) {
  std::mt19937 random(3);
  const auto some = [&] { return static_cast<double>(random() % 17) / 4; };
  for (int i = 0; i < 300; ++i) {
    Streamed s{.layers = 1 + static_cast<int>(random() % 7),
               .forward = some(),
               .backward = some(),
               .fetch = some(),
               .offload = some(),
               .update = some(),
               .window = 1 + static_cast<int>(random() % 7),
               .at_once = random() % 2 == 0,
               .tiers = random() % 3 == 0 ? kStatesAway : kAllAway,
               .micro_batches = 1 + static_cast<int>(random() % 2)};
    const Simulation simulation = s.run();
    double tracks[kNumTrackKinds] = {};
    for (const TrackEvent& event : simulation.ranks[0].tracks) {
      EXPECT_LE(event.begin_seconds, event.end_seconds);
      tracks[static_cast<int>(event.track)] += event.end_seconds - event.begin_seconds;
    }
    expect_one_step_of_many(simulation, tracks);
    const double compute = s.compute() * s.micro_batches;
    EXPECT_DOUBLE_EQ(tracks[static_cast<int>(TrackKind::kUpdate)], s.layers * s.update);
    EXPECT_DOUBLE_EQ(tracks[static_cast<int>(TrackKind::kToHost)], s.layers * s.offload);
    EXPECT_GE(simulation.step_seconds + 1e-9, std::max({compute, tracks[0], tracks[1], tracks[2]}))
        << i;
    EXPECT_LE(simulation.step_seconds, compute + tracks[0] + tracks[1] + tracks[2] + 1e-9) << i;
  }
}

TEST(TierSimulation, UserOfTiedWeightWaitsForItsOwner) {
  Streamed s{.layers = 3, .fetch = 4, .window = 8};
  Schedule schedule = s.schedule();
  const CostTable costs = equal_costs(s.dataflow, {.forward_seconds = 1, .backward_seconds = 2});
  Dataflow tied = s.dataflow;
  tied.ties.push_back({.name = "table", .owner = 2, .users = {0}});
  const TierSeconds seconds(3, {.updates_on_host = true, .fetch_seconds = 4});
  // Layer 0 starts when layer 2's weights have arrived, after those of 0 and 1.
  const Simulation simulation = simulate(schedule, tied, {{0, 3}}, costs, {}, seconds);
  EXPECT_DOUBLE_EQ(simulation.step_seconds, 12 + 9);
}

TEST(TierSeconds, AreLatencyPlusBytesOverBandwidth) {
  const Dataflow dataflow = chain(2);
  CostTable costs =
      equal_costs(dataflow, {.weight_bytes = 4000, .gradient_bytes = 4000, .state_bytes = 8000});
  const TierLayout tiers{.layers = {{}, kAllAway}};
  const TierRates rates{.to_device = 1000, .to_host = 500, .latency = 0.5, .update = 100};
  const TierSeconds seconds = tier_seconds(costs, {}, tiers, rates);
  EXPECT_FALSE(seconds[0].updates_on_host);
  EXPECT_TRUE(seconds[1].updates_on_host);
  EXPECT_DOUBLE_EQ(seconds[1].fetch_seconds, 4.5);
  EXPECT_DOUBLE_EQ(seconds[1].offload_seconds, 8.5);
  EXPECT_FALSE(seconds[1].comes_back);
  EXPECT_TRUE(tier_seconds(costs, {}, {}, rates).empty());
  // Shards of resident weights return without a fetch.
  const ShardLayout shards = shard_layout({.stage = 1}, 2, dataflow, LayerSet::all(2));
  EXPECT_TRUE(tier_seconds(costs, shards, {.layers = {{}, kStatesAway}}, rates)[1].comes_back);
}

TEST(TierSeconds, UpdateTakesBytesOverRateOrLayerSeconds) {
  const Dataflow dataflow = chain(1);
  CostTable costs = equal_costs(dataflow, {.update_seconds = 3,
                                           .weight_bytes = 400000,
                                           .gradient_bytes = 400000,
                                           .state_bytes = 800000});
  const TierLayout tiers{.layers = {kAllAway}};
  // 28 bytes per element: 16 read, 12 written.
  EXPECT_DOUBLE_EQ(tier_seconds(costs, {}, tiers, {.update = 1000})[0].update_seconds, 2800);
  EXPECT_DOUBLE_EQ(tier_seconds(costs, {}, tiers, {})[0].update_seconds, 3);
  // Each of four replicas that divide the states updates its part.
  const ShardLayout shards = shard_layout({.stage = 1}, 4, dataflow, LayerSet::all(1));
  EXPECT_NEAR(tier_seconds(costs, shards, tiers, {})[0].update_seconds, 0.75, 0.02);
  EXPECT_NEAR(tier_seconds(costs, shards, tiers, {.update = 1000})[0].update_seconds, 700, 20);
  EXPECT_EQ(update_bytes({.weights = 2, .gradients = 4, .states = 10}), 28);
}

TEST(TierRates, UseRecipeThenMachineThenDefault) {
  const MachineProfile machine = parse_machine(
      "link: {to_device: 3000, to_host: 2000, latency: 0.5}\n"
      "host: {update: 900, update_one_core: 400}",
      "m");
  const TierRates assumed = tier_rates({}, {}, 1, false);
  EXPECT_DOUBLE_EQ(assumed.to_device, kAssumedCopyRate);
  EXPECT_DOUBLE_EQ(assumed.to_host, kAssumedCopyRate);
  EXPECT_DOUBLE_EQ(assumed.update, kAssumedUpdateRate);
  EXPECT_EQ(assumed.text,
            "link in 5.0 GB/s (assumed), out 5.0 GB/s (assumed), updates 10.0 GB/s (assumed); "
            "`strata doctor` measures what is assumed");
  const TierRates measured = tier_rates({}, machine, 1, false);
  EXPECT_DOUBLE_EQ(measured.to_device, 3000);
  EXPECT_DOUBLE_EQ(measured.to_host, 2000);
  EXPECT_DOUBLE_EQ(measured.latency, 0.5);
  EXPECT_DOUBLE_EQ(measured.update, 400);  // rate of one core
  EXPECT_EQ(measured.text.find("assumed"), std::string::npos);
  EXPECT_DOUBLE_EQ(tier_rates({}, machine, 0, false).update, 900);
  EXPECT_DOUBLE_EQ(tier_rates({}, machine, 2, false).update, 800);
  EXPECT_DOUBLE_EQ(tier_rates({}, machine, 8, false).update, 900);
  EXPECT_DOUBLE_EQ(tier_rates({}, machine, 1, true).update, 0);  // the layers' own seconds
  const TierRates requested = tier_rates({.link_bandwidth = {50}}, machine, 1, false);
  EXPECT_DOUBLE_EQ(requested.to_device, 50);
  EXPECT_DOUBLE_EQ(requested.to_host, 50);
  EXPECT_DOUBLE_EQ(requested.latency, 0);
  EXPECT_NE(requested.text.find("as requested"), std::string::npos);
}

TEST(TierTraffic, CountsEveryFetchAndEachGradientOnce) {
  Streamed s{.window = 2, .micro_batches = 3};
  const Schedule schedule = s.schedule();
  const TierLayout tiers{.layers = std::vector(8, kAllAway)};
  const std::vector<ShardBytes> layers(8, {.updated = {.weights = 100, .gradients = 200}});
  const TierTraffic moved =
      tier_traffic(schedule.programs[0], equal_costs(s.dataflow, {}), layers, {}, tiers);
  EXPECT_EQ(moved.fetches, std::ranges::count_if(schedule.programs[0], [](const Action& a) {
              return a.op == Op::kPrefetchWeights;
            }));
  EXPECT_EQ(moved.to_device, moved.fetches * 100);
  EXPECT_EQ(moved.to_host, 8 * 200);
}

TEST(TierSimulation, WeightsOnDiskAreReadBeforeCopyToDevice) {
  // A window of one: compute waits for all of the 2 L - 1 fetches, with their reads.
  Streamed s{.fetch = 3, .fetch_read = 2};
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 15 * (3 + 2));
  // Transfers that overlap with compute take no time, and the read of one layer overlaps with the
  // copy of another.
  s = {.fetch = 0.25, .window = 3, .fetch_read = 0.25};
  EXPECT_NEAR(s.step(), s.compute(), 0.5);
}

TEST(TierSimulation, UpdatesFromDiskRunAtSlowestOfReadUpdateAndWrite) {
  // Updates overlap with the next forward; a slower disk is exposed.
  for (const double slow : {2.0, 5.0}) {
    Streamed s{.layers = 16, .update = 1, .window = 16, .update_read = slow, .update_write = 1};
    EXPECT_NEAR(s.step(), 16 * slow + 16 * 2, 2 * slow + 3) << slow;
    std::swap(s.update_read, s.update_write);
    EXPECT_NEAR(s.step(), 16 * slow + 16 * 2, 2 * slow + 3) << slow;
  }
  // With three staging buffers at most three layers are between the start of their read and the end
  // of their write.
  Streamed s{.layers = 12, .update = 1, .window = 12, .update_read = 1, .update_write = 4};
  const Simulation simulation = s.run();
  std::map<int, std::pair<double, double>> spans;  // by layer: from its read to its write
  for (const TrackEvent& event : simulation.ranks[0].tracks) {
    if (event.track == TrackKind::kDiskRead) spans[event.layer].first = event.begin_seconds;
    if (event.track == TrackKind::kDiskWrite) spans[event.layer].second = event.end_seconds;
  }
  ASSERT_EQ(spans.size(), 12u);
  for (const auto& [layer, span] : spans) {
    const auto beside = std::ranges::count_if(spans, [&](const auto& other) {
      return other.second.first <= span.first && other.second.second > span.first;
    });
    EXPECT_LE(beside, 3) << layer;
  }
}

TEST(TierSimulation, FetchFromDiskFollowsItsWrite) {
  // One layer, updated at the end of a step: its write and its read separate two forwards.
  Streamed s{
      .layers = 1, .fetch = 1, .update = 4, .fetch_read = 2, .update_read = 1, .update_write = 7};
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 1 + 4 + 7 + 2 + 1);
  s.update_write = 3;
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 1 + 4 + 3 + 2 + 1);
}

// One layer: its gradient is written before it is read for the update.
TEST(TierSimulation, UpdateFollowsGradientThroughDisk) {
  Streamed s{.layers = 1,
             .fetch = 1,
             .update = 4,
             .update_read = 2,
             .update_write = 1,
             .gradient_write = 3};
  const Simulation simulation = s.run();
  double written = 0;
  for (const TrackEvent& event : simulation.ranks[0].tracks) {
    if (event.track == TrackKind::kDiskWrite && written == 0) written = event.end_seconds;
    if (event.track == TrackKind::kDiskRead) EXPECT_GE(event.begin_seconds, written);
  }
  EXPECT_DOUBLE_EQ(s.step(), s.compute() + 1 + 3 + 2 + 4);
  // Three staging buffers: a slow write holds back the offload of the fourth gradient.
  Streamed slow{.layers = 8, .window = 8, .update_read = 1, .update_write = 1, .gradient_write = 9};
  const double hidden =
      Streamed{.layers = 8, .window = 8, .update_read = 1, .update_write = 1}.step();
  EXPECT_GE(slow.step(), hidden + 4 * 9);
}

ShardBytes on_disk(LayerTiers tiers) {
  const LayerCost layer{.weight_bytes = 100, .gradient_bytes = 100, .state_bytes = 200};
  return shard_bytes(layer, {}, {}, 4, true, tiers);
}

TEST(TierTraffic, DiskCountsUpdatesFetchesAndCommits) {
  Streamed s{.window = 2};
  const Schedule schedule = s.schedule();
  const struct {
    LayerTiers tiers;
    std::int64_t fetch, update, written;
  } cases[] = {{{Tier::kDisk, Tier::kHost, Tier::kDisk}, 100, 300, 300},
               {{Tier::kDisk, Tier::kDisk, Tier::kDisk}, 100, 400, 400},
               {{Tier::kHost, Tier::kHost, Tier::kDisk}, 0, 200, 300},  // weights at commits
               {kAllAway, 0, 0, 0}};
  for (const auto& c : cases) {
    const std::vector<ShardBytes> layers(8, on_disk(c.tiers));
    const TierTraffic moved = tier_traffic(schedule.programs[0], equal_costs(s.dataflow, {}),
                                           layers, {}, {.layers = std::vector(8, c.tiers)});
    EXPECT_EQ(moved.disk_read, moved.fetches * c.fetch + 8 * c.update);
    EXPECT_EQ(moved.disk_written, 8 * c.written);
    EXPECT_EQ(moved.to_device, moved.fetches * 100);  // from any tier
    EXPECT_EQ(moved.to_host, 8 * 100);
  }
}

TEST(TierSeconds, DiskTakesBytesOverRates) {
  const Dataflow dataflow = chain(1);
  const CostTable costs =
      equal_costs(dataflow, {.weight_bytes = 100, .gradient_bytes = 100, .state_bytes = 200});
  const TierRates rates{.disk_read = 10, .disk_write = 5};
  const auto seconds_of = [&](LayerTiers tiers) {
    return tier_seconds(costs, {}, {.layers = {tiers}}, rates)[0];
  };
  const LayerTierSeconds all = seconds_of({Tier::kDisk, Tier::kHost, Tier::kDisk});
  EXPECT_DOUBLE_EQ(all.fetch_read_seconds, 10);
  EXPECT_DOUBLE_EQ(all.update_read_seconds, 30);
  EXPECT_DOUBLE_EQ(all.update_write_seconds, 60);
  EXPECT_TRUE(all.weights_on_disk);
  EXPECT_DOUBLE_EQ(all.gradient_write_seconds, 0);
  const LayerTierSeconds gradients = seconds_of({Tier::kDisk, Tier::kDisk, Tier::kDisk});
  EXPECT_DOUBLE_EQ(gradients.update_read_seconds, 40);
  EXPECT_DOUBLE_EQ(gradients.update_write_seconds, 60);
  EXPECT_DOUBLE_EQ(gradients.gradient_write_seconds, 20);
  const LayerTierSeconds states = seconds_of({Tier::kHost, Tier::kHost, Tier::kDisk});
  EXPECT_DOUBLE_EQ(states.fetch_read_seconds, 0);
  EXPECT_DOUBLE_EQ(states.update_read_seconds, 20);
  EXPECT_FALSE(states.weights_on_disk);
  // Resident weights are copied from the staging buffer of their update.
  EXPECT_DOUBLE_EQ(seconds_of({Tier::kDevice, Tier::kHost, Tier::kDisk}).fetch_read_seconds, 0);
  EXPECT_DOUBLE_EQ(seconds_of(kAllAway).update_write_seconds, 0);
}

// Transfers overlap with the whole step, updates with backward or the next forward.
TEST(TierBounds, AreWhereComputeEqualsOverlappedWork) {
  Streamed s{.fetch = 1.5, .offload = 1, .update = 4, .window = 8, .at_once = true};
  const Schedule schedule = s.schedule();
  const TierBounds at_once = tier_bounds(s.run(), schedule, true, 600, "tokens");
  EXPECT_DOUBLE_EQ(at_once.link, 600 * 8 * 1.5 / 24);
  EXPECT_DOUBLE_EQ(at_once.update, 600 * 8 * 4 / 16.0);
  EXPECT_EQ(binding_sentence(at_once),
            "link-bound below 300 tokens a step; optimizer-bound below 1.2 k; this one has 600: "
            "the optimizer binds");
  s.at_once = false;
  const TierBounds in_time = tier_bounds(s.run(), s.schedule(), false, 600, "tokens");
  EXPECT_DOUBLE_EQ(in_time.update, 600 * 8 * 4 / 8.0);
  EXPECT_NE(binding_sentence({.amount = 10, .link = 9, .update = 8}).find("compute binds"),
            std::string::npos);
  EXPECT_NE(binding_sentence({.amount = 10, .link = 19, .update = 8}).find("the link binds"),
            std::string::npos);
  EXPECT_EQ(binding_sentence({.amount = 10, .link = 19, .update = 8, .disk = 30}),
            "link-bound below 19 tokens a step; optimizer-bound below 8; disk-bound below 30; this "
            "one has 10: the disk binds");
  // Reads overlap with the step, writes of updates with the next forward.
  Streamed disk{.window = 8, .update_read = 3, .update_write = 2};
  const TierBounds bounds = tier_bounds(disk.run(), disk.schedule(), false, 600, "tokens");
  EXPECT_DOUBLE_EQ(bounds.disk, 600 * 2);
  disk.update_read = 9;
  EXPECT_DOUBLE_EQ(tier_bounds(disk.run(), disk.schedule(), false, 600, "tokens").disk, 600 * 3);
}

}  // namespace
}  // namespace strata
