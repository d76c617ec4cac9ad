#include "strata/plan/simulate/shard_bytes.h"

#include <gtest/gtest.h>

#include <string>

#include "strata/plan/example_models_test.h"
#include "strata/plan/ledger/ledger.h"
#include "strata/plan/ledger/zero_bytes.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"

namespace strata {
namespace {

constexpr std::int64_t kWeights = 4 * 100 * 1024;  // 100 blocks of fp32
const LayerCost kLayer{.forward_seconds = 1,
                       .backward_seconds = 2,
                       .weight_bytes = kWeights,
                       .gradient_bytes = kWeights,
                       .state_bytes = 2 * kWeights};

ShardLayout layout_of(int layers, const ZeroPolicy& zero, int replicas) {
  return shard_layout(zero, replicas, chain(layers), LayerSet::all(layers));
}

ShardBytes bytes_of(const LayerCost& layer, const ZeroPolicy& zero, int replicas,
                    int weight_element_bytes = 4) {
  const ShardLayout layout = layout_of(1, zero, replicas);
  return shard_bytes(layer, layout[0], layout, weight_element_bytes, /*reads_in_place=*/false);
}

TEST(ShardBytes, EachStageShardsOneMoreKind) {
  for (int zero = 0; zero <= 3; ++zero) {
    const ShardBytes bytes = bytes_of(kLayer, {.stage = zero}, 4);
    EXPECT_EQ(bytes.states, 2 * kWeights / (zero >= 1 ? 4 : 1));
    EXPECT_EQ(bytes.gradients, kWeights / (zero >= 2 ? 4 : 1));
    EXPECT_EQ(bytes.weights, kWeights / (zero >= 3 ? 4 : 1));
    EXPECT_EQ(bytes.fetched_weights, zero >= 3 ? kWeights : 0);
    EXPECT_EQ(bytes.own_gradients, kWeights);
  }
}

// Of n replicas, each sends the others an n-th of its gradients, and an n-th of the sum.
TEST(ShardBytes, SumsMayArriveBesideTheirTerms) {
  EXPECT_EQ(bytes_of(kLayer, {}, 2).received, kWeights);
  EXPECT_EQ(bytes_of(kLayer, {}, 4).received, 2 * 3 * kWeights / 4);
  EXPECT_EQ(bytes_of(kLayer, {.stage = 2}, 4).received, kWeights);  // no sum is sent
  EXPECT_EQ(bytes_of(kLayer, {.stage = 2, .shard_ranks = 2}, 4).received, kWeights);
}

TEST(ShardBytes, AreCutAtBlocksForFullestRank) {
  const auto states = [](std::int64_t elements, int ranks) {
    const LayerCost layer{.weight_bytes = 4 * elements, .state_bytes = 8 * elements};
    return bytes_of(layer, {.stage = 1}, ranks).states;
  };
  EXPECT_EQ(states(5 * 1024, 2), 8 * 3 * 1024);  // three of five blocks
  EXPECT_EQ(states(4 * 1024 + 1, 2), 8 * 3 * 1024);
  EXPECT_EQ(states(100, 8), 800);  // less than a block is not divided
  EXPECT_EQ(states(0, 8), 0);
}

TEST(ShardBytes, CodesAreHeldBesideWeightsAndGradients) {
  LayerCost layer = kLayer;
  layer.matrix_bytes = kWeights;
  constexpr std::int64_t kInt8 = kWeights / 4 + kWeights / 128;  // a byte, and a scale for 128
  constexpr std::int64_t kInt4 = kWeights / 8 + kWeights / 128;
  const Traffic traffic{.gradients = TrafficFormat::kInt4, .weights = TrafficFormat::kInt8};
  const ShardBytes whole = bytes_of(layer, {.traffic = {.gradients = TrafficFormat::kInt4}}, 4);
  EXPECT_EQ(whole.gradient_code, kInt4);
  EXPECT_EQ(whole.sum_code, kInt4 / 4);  // which the others gather
  EXPECT_EQ(whole.received, 3 * kInt4 / 4);
  EXPECT_EQ(whole.weight_code, 0);
  const ShardBytes sharded = bytes_of(layer, {.stage = 3, .traffic = traffic}, 4);
  EXPECT_EQ(sharded.gradient_code, kInt4);
  EXPECT_EQ(sharded.sum_code, 0);
  EXPECT_EQ(sharded.weight_code, kInt8);
  EXPECT_EQ(sharded.gathered_part, kInt8);  // its own part's code and those received
  const ShardBytes alone = bytes_of(layer, {.stage = 3, .traffic = traffic}, 1);
  EXPECT_EQ(alone.gradient_code + alone.weight_code + alone.gathered_part, 0);
}

TEST(ShardBytes, TiedLayersShardStatesOnly) {
  LayerCost layer = kLayer;
  layer.replica_bytes = kWeights;
  layer.gradient_bytes = 2 * kWeights;
  Dataflow dataflow = chain(2);
  dataflow.ties.push_back({.name = "table", .owner = 0, .users = {1}});
  const ShardLayout layout = shard_layout({.stage = 3}, 4, dataflow, LayerSet::all(2));
  const ShardBytes bytes = shard_bytes(layer, layout[1], layout, 4, false);
  EXPECT_EQ(bytes.weights, kWeights);
  EXPECT_EQ(bytes.gradients, 2 * kWeights);
  EXPECT_EQ(bytes.states, 2 * kWeights / 4);
  EXPECT_EQ(bytes.own_gradients, kWeights);  // the use's own gradient is not reduced
  EXPECT_EQ(bytes.fetched_weights, 0);
}

TEST(ShardBytes, CountElementsByWeightType) {
  // 50 blocks of bf16 with fp32 gradients and twelve bytes of states.
  const LayerCost layer{.weight_bytes = 2 * 50 * 1024,
                        .gradient_bytes = 4 * 50 * 1024,
                        .state_bytes = 12 * 50 * 1024};
  const ShardBytes bytes = bytes_of(layer, {.stage = 3}, 4, /*weight_element_bytes=*/2);
  EXPECT_EQ(bytes.weights, 2 * 13 * 1024);
  EXPECT_EQ(bytes.gradients, 4 * 13 * 1024);
  EXPECT_EQ(bytes.states, 12 * 13 * 1024);
}

TEST(ShardBytes, HundredBillionParametersDoNotOverflow) {
  const std::int64_t elements = std::int64_t{100} << 30;
  const LayerCost layer{.weight_bytes = 4 * elements, .state_bytes = 8 * elements};
  EXPECT_EQ(bytes_of(layer, {.stage = 1}, 2).states, 4 * elements);
}

RankLedger ledger_of(const Dataflow& dataflow, const CostTable& costs, int micro_batches,
                     const ShardLayout& shards, bool reads_in_place) {
  const Partition partition = equal_stages(dataflow.num_layers, 1);
  const Schedule schedule = lower(build_schedule(ScheduleKind::k1f1b, {1, micro_batches}), dataflow,
                                  partition, {.shards = shards});
  return make_ledger(schedule, dataflow, partition, costs,
                     simulate(schedule, dataflow, partition, costs), shards, reads_in_place)[0];
}

RankLedger ledger_of(int layers, int micro_batches, const ZeroPolicy& zero, int replicas,
                     bool reads_in_place = false) {
  const Dataflow dataflow = chain(layers);
  return ledger_of(dataflow, equal_costs(dataflow, kLayer), micro_batches,
                   layout_of(layers, zero, replicas), reads_in_place);
}

// The formulas of ZeRO, section 5, plus the listed buffers.
TEST(ShardBytes, LedgerMatchesFormulasPlusListedBuffers) {
  constexpr int kLayers = 6;
  const double parameters = kLayers * kWeights / 4.0;
  // Received gradients of reductions in flight: all layers, in stage 0 with three quarters of their
  // sums; or from stage 2 on one layer while the next one runs, plus the whole gradients of both
  // and of the previous one, which peers may still read; in stage 3 also the weights of the two
  // layers in the window.
  constexpr int kBuffers[] = {kLayers * 3 / 2, kLayers, 4, 6};
  for (int zero = 0; zero <= 3; ++zero) {
    const RankLedger rank = ledger_of(kLayers, 4, {.stage = zero, .reduce = ReduceMode::kEach}, 4);
    const ModelStateBytes formula = zero_bytes(parameters, precision_convention("fp32"), zero, 4);
    EXPECT_EQ(rank.at_peak[ByteKind::kWeights], formula.weights);
    EXPECT_EQ(rank.at_peak[ByteKind::kGradients], formula.gradients);
    EXPECT_EQ(rank.at_peak[ByteKind::kStates], formula.states);
    EXPECT_EQ(rank.at_peak[ByteKind::kBuffers], kBuffers[zero] * kWeights) << zero;
    EXPECT_EQ(rank.timeline.front().bytes, rank.timeline.back().bytes);
  }
}

TEST(ShardBytes, ReduceOnceKeepsWholeGradientsUntilAwaited) {
  const RankLedger rank = ledger_of(6, 4, {.stage = 2}, 4);
  EXPECT_EQ(rank.at_peak[ByteKind::kGradients], 6 * kWeights / 4 + 6 * kWeights);
  EXPECT_EQ(rank.at_peak[ByteKind::kBuffers], 6 * kWeights);  // all reductions are in flight
  EXPECT_EQ(rank.timeline.back().bytes, rank.timeline.front().bytes);
}

TEST(ShardBytes, InPlaceReductionsReceiveNothing) {
  EXPECT_EQ(ledger_of(6, 4, {.stage = 2}, 4, /*reads_in_place=*/true).at_peak[ByteKind::kBuffers],
            0);
}

// Messages of signs are for the states of a rank. Here they exceed all other buffers.
TEST(ShardBytes, MessagesOfSignsArePeakOfUpdate) {
  const Dataflow dataflow = chain(3);
  CostTable costs = equal_costs(dataflow, kLayer);
  for (LayerCost& layer : costs.layers) layer.sign_bytes = 100 * kWeights;
  for (const ZeroPolicy& zero : {ZeroPolicy{}, {.stage = 1, .shard_ranks = 2}, {.stage = 3}}) {
    const int shards = zero.shards(4);
    const RankLedger rank =
        ledger_of(dataflow, costs, 2, layout_of(3, zero, 4), /*reads_in_place=*/true);
    EXPECT_EQ(rank.at_peak[ByteKind::kTransients], 100 * kWeights / shards) << shards;
    EXPECT_EQ(rank.timeline.front().bytes, rank.timeline.back().bytes);
  }
}

TEST(ShardBytes, FetchedLayersHoldWholeWeightsInWindow) {
  const RankLedger rank = ledger_of(6, 2, {.stage = 3}, 4, /*reads_in_place=*/true);
  EXPECT_EQ(rank.at_peak[ByteKind::kWeights], 6 * kWeights / 4);
  EXPECT_EQ(rank.at_peak[ByteKind::kBuffers], 2 * kWeights);  // the running layer and the next
}

TEST(ShardBytes, TiedLayersKeepWeightsAndGradients) {
  Dataflow dataflow = chain(3);
  dataflow.ties.push_back({.name = "table", .owner = 0, .users = {2}});
  const CostTable costs = equal_costs(dataflow, kLayer);
  const RankLedger rank =
      ledger_of(dataflow, costs, 2, shard_layout({.stage = 3}, 2, dataflow, LayerSet::all(3)),
                /*reads_in_place=*/true);
  EXPECT_EQ(rank.timeline.front().bytes, rank.timeline.back().bytes);
  EXPECT_EQ(rank.at_peak[ByteKind::kWeights], 2 * kWeights + kWeights / 2);
  EXPECT_EQ(rank.at_peak[ByteKind::kStates], 3 * kWeights);
}

TEST(ShardBytes, OneReplicaEqualsNoSharding) {
  for (int zero = 0; zero <= 3; ++zero) {
    const RankLedger rank = ledger_of(3, 2, {.stage = zero}, 1);
    EXPECT_EQ(rank.peak_bytes, ledger_of(3, 2, {}, 1).peak_bytes);
    EXPECT_EQ(rank.at_peak[ByteKind::kBuffers], 0);
  }
}

TEST(ShardBytes, ResidentCostsEqualLedgerAtStart) {
  const Dataflow dataflow = chain(5);
  const ShardLayout shards = layout_of(5, {.stage = 3, .shard_ranks = 4}, 8);
  const CostTable costs = equal_costs(dataflow, kLayer);
  std::int64_t sum = 0;
  for (const LayerCost& layer : resident_costs(costs, shards).layers) {
    sum += layer.weight_bytes + layer.gradient_bytes + layer.state_bytes;
  }
  EXPECT_EQ(sum, ledger_of(dataflow, costs, 2, shards, false).timeline.front().bytes);
}

}  // namespace
}  // namespace strata
