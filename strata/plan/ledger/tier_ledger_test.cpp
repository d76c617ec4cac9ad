// Compares the bytes of layers that live on the host with a replay of the program by the rules
// alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "strata/plan/example_models_test.h"
#include "strata/plan/ledger/ledger.h"
#include "strata/plan/simulate/tier_traffic.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"

namespace strata {
namespace {

constexpr LayerTiers kAllAway{Tier::kHost, Tier::kHost, Tier::kHost};

struct Case {
  Dataflow dataflow;
  CostTable costs;
  TierLayout tiers;
  int micro_batches = 1;
  ShardLayout shards = {};

  Schedule schedule() const {
    return lower(build_schedule(ScheduleKind::kGpipe, {1, micro_batches}), dataflow,
                 {{0, dataflow.num_layers}}, {.shards = shards, .tiers = tiers});
  }
  RankLedger ledger() const {
    const Schedule lowered = schedule();
    const Partition partition{{0, dataflow.num_layers}};
    const Simulation simulation =
        simulate(lowered, dataflow, partition, costs, {},
                 tier_seconds(costs, shards, tiers, {.to_device = 1e3, .to_host = 1e3}));
    return make_ledger(lowered, dataflow, partition, costs, simulation, shards, true, tiers)[0];
  }
};

// Bytes on the device for the whole step.
std::int64_t resident_bytes(const Case& c) {
  std::int64_t bytes = 0;
  for (int l = 0; l < c.dataflow.num_layers; ++l) {
    const LayerCost& layer = c.costs.layers[l];
    if (!c.tiers[l].fetches_weights()) bytes += layer.weight_bytes;
    if (!c.tiers[l].offloads_gradients()) bytes += layer.gradient_bytes;
    if (!c.tiers[l].updates_on_host()) bytes += layer.state_bytes;
  }
  return bytes;
}

// The largest sum of weights, gradients and states on the device at any position of the program.
std::int64_t replayed_peak(const Case& c) {
  const auto& layers = c.costs.layers;
  const std::int64_t always = resident_bytes(c);
  std::int64_t most = 0;
  std::set<int> fetched, open;
  int leaving = -1;
  const auto look = [&] {
    std::int64_t now = always;
    for (const int l : fetched) now += layers[l].weight_bytes;
    for (const int l : open) now += layers[l].gradient_bytes;
    most = std::max(most, now);
  };
  look();
  const Schedule schedule = c.schedule();
  for (const Action& action : schedule.programs[0]) {
    const int layer = action.layers.begin;
    if (action.op == Op::kPrefetchWeights && c.tiers[layer].fetches_weights())
      fetched.insert(layer);
    if (action.op == Op::kReleaseWeights) fetched.erase(layer);
    if (action.op == Op::kBackward) {
      for (int l = action.layers.end; l-- > layer;) {
        if (c.tiers[l].offloads_gradients()) open.insert(l);
        look();
      }
    }
    if (action.op == Op::kOffloadGradients) {
      open.erase(leaving);
      leaving = layer;
    }
    if (action.op == Op::kReduceNormAndLoss) open.erase(leaving);
    look();
  }
  EXPECT_TRUE(fetched.empty());
  EXPECT_TRUE(open.empty());
  return most;
}

LayerTiers random_tiers(std::mt19937& random) {
  const auto coin = [&] { return random() % 2 == 0 ? Tier::kDevice : Tier::kHost; };
  if (random() % 4 == 0) return {};
  if (random() % 2 == 0) return {coin(), coin(), Tier::kHost};
  const Tier weights[] = {Tier::kDevice, Tier::kHost, Tier::kDisk};
  return {weights[random() % 3], random() % 3 == 0 ? Tier::kDisk : coin(), Tier::kDisk};
}

TEST(TierLedger, MatchesReplayOfProgram) {
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    Case c;
    const int layers = 1 + static_cast<int>(random() % 6);
    c.dataflow = chain(layers);
    if (layers > 2 && random() % 2 == 0)
      c.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {layers - 1}});
    c.costs = equal_costs(c.dataflow, {});
    c.micro_batches = 1 + static_cast<int>(random() % 3);
    c.tiers.window = 1 + static_cast<int>(random() % 5);
    c.tiers.updates_at_once = random() % 2 == 0;
    HostBytes host, disk;
    std::vector<LayerOnDisk> staged;
    for (LayerCost& cost : c.costs.layers) {
      const std::int64_t numel = 1 + static_cast<std::int64_t>(random() % 1000);
      const bool tied = !c.dataflow.ties.empty() && &cost == &c.costs.layers.back();
      cost.weight_bytes = 4 * numel;
      cost.replica_bytes = tied ? c.costs.layers[0].weight_bytes : 0;
      cost.gradient_bytes = 4 * numel + cost.replica_bytes;
      cost.state_bytes = 8 * numel;
      cost.forward_seconds = 1e-3 * static_cast<double>(random() % 5);
      cost.backward_seconds = 1e-3 * static_cast<double>(random() % 5);
      c.tiers.layers.push_back(random_tiers(random));
      const LayerTiers& tiers = c.tiers.layers.back();
      const bool away = tiers.updates_on_host(), to_disk = tiers.states == Tier::kDisk;
      const bool weights_here = away && (!to_disk || tiers.weights == Tier::kHost);
      const std::int64_t gradients = tiers.gradients == Tier::kDisk ? 4 * numel : 0;
      host += {weights_here ? cost.weight_bytes : 0, away ? 4 * numel - gradients : 0,
               away && !to_disk ? cost.state_bytes : 0};
      if (!to_disk) continue;
      disk += {cost.weight_bytes, gradients, cost.state_bytes};
      staged.push_back(
          {cost.weight_bytes, cost.state_bytes, weights_here, tiers.fetches_weights(), gradients});
    }
    const RankLedger rank = c.ledger();
    EXPECT_EQ(rank.peak_bytes, replayed_peak(c)) << i;
    if (!rank.timeline.empty()) EXPECT_EQ(rank.timeline.back().bytes, resident_bytes(c)) << i;
    host.staging = disk_staging(staged).bytes();
    EXPECT_EQ(rank.host, host) << i;
    EXPECT_EQ(rank.on_disk, disk) << i;
    EXPECT_EQ(rank.disk_bytes, file_bytes(staged)) << i;
  }
}

Case streamed(int layers, int window, int micro_batches = 1) {
  Case c;
  c.dataflow = chain(layers);
  c.costs = equal_costs(c.dataflow, {.forward_seconds = 1,
                                     .backward_seconds = 2,
                                     .weight_bytes = 1000,
                                     .gradient_bytes = 1000,
                                     .state_bytes = 2000});
  c.tiers = {.layers = std::vector(layers, kAllAway), .window = window};
  c.micro_batches = micro_batches;
  return c;
}

// Layers 0..L-1 and back: a window of W holds W layers, and the gradients of one layer are computed
// while those of another are offloaded.
TEST(TierLedger, WindowHoldsItsLayersAndTwoGradients) {
  for (const int layers : {4, 9}) {
    for (int window = 2; window <= layers; ++window) {
      const RankLedger rank = streamed(layers, window).ledger();
      const std::int64_t all = rank.at_peak.total();
      EXPECT_EQ(rank.at_peak[ByteKind::kWeights] + rank.at_peak[ByteKind::kStates], 0);
      EXPECT_EQ(rank.at_peak[ByteKind::kBuffers], window * 1000) << window;
      // The first gradients are computed while the window is full.
      EXPECT_GE(all, window * 1000 + 1000);
      EXPECT_LE(all, window * 1000 + 2000);
      EXPECT_EQ(rank.host, (HostBytes{layers * 1000, layers * 1000, layers * 2000}));
    }
    EXPECT_EQ(streamed(layers, 1).ledger().peak_bytes, 1000 + 2 * 1000);
  }
}

// Buffers of the largest gradient that needs one, at most one per layer.
TEST(TierLedger, ConsumedGradientsShareBuffers) {
  Case c = streamed(6, 2);
  c.tiers.gradient_buffers = 2;
  EXPECT_EQ(c.ledger().host, (HostBytes{6000, 6000, 12000}));  // all wait for the norm
  c.tiers.updates_at_once = true;
  EXPECT_EQ(c.ledger().host, (HostBytes{6000, 2000, 12000}));
  c.costs.layers[3].gradient_bytes = 1500;
  EXPECT_EQ(c.ledger().host, (HostBytes{6000, 3000, 12000}));
  c.tiers.gradient_buffers = 9;
  EXPECT_EQ(c.ledger().host.gradients, 6 * 1500);
  // The gradient of a tied layer is complete only when its tie is added.
  c.tiers.gradient_buffers = 1;
  c.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {5}});
  EXPECT_EQ(c.ledger().host.gradients, 2 * 1000 + 1500);
}

// With several micro-batches gradients accumulate on the device until the last one.
TEST(TierLedger, AccumulatedGradientsStayUntilLastBackward) {
  const RankLedger rank = streamed(5, 2, 3).ledger();
  EXPECT_EQ(rank.at_peak[ByteKind::kGradients], 5 * 1000);
}

TEST(TierLedger, ReducedGradientsEndWithTheirReduction) {
  Case c = streamed(4, 2);
  c.shards = shard_layout({}, 2, c.dataflow, LayerSet::all(4));
  const RankLedger once = c.ledger();
  // All reductions are awaited at the end: four gradients, and the weights of the last layer.
  EXPECT_EQ(once.peak_bytes, 4 * 1000 + 1000);
  EXPECT_EQ(once.timeline.back().bytes, 0);
  EXPECT_EQ(once.host, (HostBytes{4000, 4000, 8000}));
}

// On a GPU the sum of gradients that live on the host is a buffer until the next sum is computed or
// the norm is known. At the last reduction, that of the first layer, the sum of the previous layer
// is still being offloaded.
TEST(TierLedger, TwoOffloadedSumsCoexist) {
  Case c = streamed(2, 2);
  c.shards = shard_layout({}, 2, c.dataflow, LayerSet::all(2));
  constexpr std::int64_t kFirst = 9000, kSecond = 2000;
  for (int l = 0; l < 2; ++l) {
    LayerCost& cost = c.costs.layers[l];
    cost.gradient_bytes = cost.weight_bytes = l == 0 ? kFirst : kSecond;
  }
  const RankLedger here = c.ledger();
  c.costs.launch = {.kernel = 1e-9, .segment = 1e-9};
  const RankLedger gpu = c.ledger();
  // The sum is computed in blocks, and these gradients are smaller than one block.
  EXPECT_EQ(here.peak_bytes, kFirst + kSecond + kFirst);
  EXPECT_EQ(gpu.at_peak[ByteKind::kBuffers], kFirst + kSecond);
  // All reductions start before any is awaited, so peers may read either gradient until the norm.
  EXPECT_EQ(gpu.peak_bytes, (kFirst + kSecond) + (kFirst + kSecond) + kFirst);
  EXPECT_EQ(gpu.timeline.back().bytes, 0);
}

// An offloaded sum is allocated before a peer's next message confirms that it has read the previous
// gradient, so it exists in addition to both gradients.
TEST(TierLedger, OffloadedSumCoexistsWithExportedGradient) {
  Case c = streamed(2, 2);
  c.shards =
      shard_layout({.stage = 2, .reduce = ReduceMode::kEach}, 2, c.dataflow, LayerSet::all(2));
  constexpr std::int64_t kFirst = 300'000, kSecond = 900'000;
  for (int l = 0; l < 2; ++l) {
    LayerCost& cost = c.costs.layers[l];
    cost.weight_bytes = 4;
    cost.gradient_bytes = l == 0 ? kFirst : kSecond;
  }
  c.costs.launch = {.kernel = 1e-9, .segment = 1e-9};
  // The second layer's exported gradient and the sum being offloaded, the first layer's gradient
  // and sum.
  EXPECT_EQ(c.ledger().peak_bytes, 2 * kSecond + 2 * kFirst);
}

// Each of four replicas fetches its quarter to where the others read it: for a layer whose gather
// confirms nothing yet, for the two after it, and for the layer being fetched.
TEST(TierLedger, PartsOfGatheredWeightsStayUntilReplicasHaveReadThem) {
  constexpr std::int64_t kPart = 25 * 4 * 1024,
                         kWeights = 4 * kPart;  // in blocks of 1,024 elements
  Case c = streamed(6, 2);
  c.shards = shard_layout({.stage = 3}, 4, c.dataflow, LayerSet::all(6));
  for (LayerCost& cost : c.costs.layers) {
    cost.weight_bytes = kWeights;
    cost.gradient_bytes = 0;
    cost.state_bytes = 2 * kWeights;
  }
  EXPECT_EQ(c.ledger().at_peak[ByteKind::kBuffers], 2 * kWeights);
  EXPECT_EQ(c.ledger().host.staging, 0);

  Case gpu = c;
  gpu.costs.launch = {.kernel = 1e-9, .segment = 1e-9};
  EXPECT_EQ(gpu.ledger().at_peak[ByteKind::kBuffers], 2 * kWeights + 4 * kPart);
  EXPECT_EQ(gpu.ledger().host.staging, 0);
  EXPECT_EQ(gpu.ledger().timeline.back().bytes, 0);

  for (LayerTiers& tiers : c.tiers.layers) tiers = {Tier::kDisk, Tier::kHost, Tier::kDisk};
  const std::vector<LayerOnDisk> on_disk(
      6,
      {.weights = kPart, .states = 2 * kPart, .weights_on_host = false, .fetches_weights = true});
  EXPECT_EQ(c.ledger().at_peak[ByteKind::kBuffers], 2 * kWeights);
  EXPECT_EQ(c.ledger().host.staging, disk_staging(on_disk).bytes() + 4 * kPart);
}

// 100 blocks per layer over four replicas: the host has a shard of each, the device what it
// computes with. Offloaded weights are gathered from the replicas' parts in every stage.
TEST(TierLedger, ShardsOfReplicasLiveOnHost) {
  constexpr std::int64_t kWeights = 4 * 100 * 1024;
  for (int zero = 1; zero <= 3; ++zero) {
    Case c = streamed(4, 2);
    for (LayerCost& cost : c.costs.layers) {
      cost.weight_bytes = cost.gradient_bytes = kWeights;
      cost.state_bytes = 2 * kWeights;
    }
    c.shards = shard_layout({.stage = zero}, 4, c.dataflow, LayerSet::all(4));
    for (LayerShards& shards : c.shards.layers) shards.weights = true;  // as StepPlan does
    const RankLedger away = c.ledger();
    EXPECT_EQ(away.host, (HostBytes{kWeights, kWeights, 2 * kWeights})) << zero;
    EXPECT_EQ(away.timeline.back().bytes, 0);
    EXPECT_LE(away.at_peak[ByteKind::kBuffers], 2 * kWeights);  // the window
    EXPECT_EQ(away.at_peak[ByteKind::kWeights] + away.at_peak[ByteKind::kStates], 0);

    c.shards = shard_layout({.stage = zero}, 4, c.dataflow, LayerSet::all(4));
    for (LayerTiers& tiers : c.tiers.layers) tiers.weights = Tier::kDevice;
    const RankLedger near = c.ledger();
    EXPECT_EQ(near.host, (HostBytes{kWeights, kWeights, 2 * kWeights})) << zero;
    EXPECT_EQ(near.at_peak[ByteKind::kWeights], zero == 3 ? 0 : 4 * kWeights);
  }
}

TEST(TierLedger, SixteenBitWeightsKeepMasterInStates) {
  Case c = streamed(1, 1);
  c.costs.weight_element_bytes = 2;
  c.costs.layers[0] = {
      .weight_bytes = 2 * 1024, .gradient_bytes = 4 * 1024, .state_bytes = 12 * 1024};
  const RankLedger rank = c.ledger();
  EXPECT_EQ(rank.host, (HostBytes{2 * 1024, 4 * 1024, 12 * 1024}));
  EXPECT_EQ(rank.peak_bytes, 6 * 1024);
}

}  // namespace
}  // namespace strata
