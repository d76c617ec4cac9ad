#include "strata/plan/sharding.h"

#include <gtest/gtest.h>

#include <string>

#include "strata/plan/example_models_test.h"
#include "strata/plan/ledger.h"
#include "strata/plan/zero_bytes.h"
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

TEST(Sharding, EachStageSharesOutOneKindMore) {
  for (int zero = 0; zero <= 3; ++zero) {
    const LayerShares shares =
        shares_of(kLayer, false, {.replicas = 4, .shard_ranks = 4, .zero = zero});
    EXPECT_EQ(shares.states, 2 * kWeights / (zero >= 1 ? 4 : 1));
    EXPECT_EQ(shares.gradients, kWeights / (zero >= 2 ? 4 : 1));
    EXPECT_EQ(shares.weights, kWeights / (zero >= 3 ? 4 : 1));
    EXPECT_EQ(shares.full_weights, zero >= 3 ? kWeights : 0);
    EXPECT_EQ(shares.full_gradients, kWeights);
  }
}

TEST(Sharding, CutsAtBlocksAndGivesTheFullestRanksShare) {
  const auto states = [](std::int64_t elements, int ranks) {
    const LayerCost layer{.weight_bytes = 4 * elements, .state_bytes = 8 * elements};
    return shares_of(layer, false, {.replicas = ranks, .shard_ranks = ranks, .zero = 1}).states;
  };
  EXPECT_EQ(states(5 * 1024, 2), 8 * 3 * 1024);  // of five blocks, three
  EXPECT_EQ(states(4 * 1024 + 1, 2), 8 * 3 * 1024);
  EXPECT_EQ(states(100, 8), 800);  // less than a block stays whole
  EXPECT_EQ(states(0, 8), 0);
}

TEST(Sharding, LayersOfATieShareOutTheirStatesAlone) {
  LayerCost layer = kLayer;
  layer.replica_bytes = kWeights;
  layer.gradient_bytes = 2 * kWeights;
  const LayerShares shares = shares_of(layer, true, {.replicas = 4, .shard_ranks = 4, .zero = 3});
  EXPECT_EQ(shares.weights, kWeights);
  EXPECT_EQ(shares.gradients, 2 * kWeights);
  EXPECT_EQ(shares.states, 2 * kWeights / 4);
  EXPECT_EQ(shares.full_gradients, kWeights);  // the use's own is no part of a reduction
  EXPECT_EQ(shares.full_weights, 0);
}

TEST(Sharding, CountsElementsOfTheWeightsType) {
  // 50 blocks of bf16 with fp32 gradients and twelve bytes of states.
  const LayerCost layer{.weight_bytes = 2 * 50 * 1024,
                        .gradient_bytes = 4 * 50 * 1024,
                        .state_bytes = 12 * 50 * 1024};
  const LayerShares shares = shares_of(
      layer, false, {.replicas = 4, .shard_ranks = 4, .zero = 3, .weight_element_bytes = 2});
  EXPECT_EQ(shares.weights, 2 * 13 * 1024);
  EXPECT_EQ(shares.gradients, 4 * 13 * 1024);
  EXPECT_EQ(shares.states, 12 * 13 * 1024);
}

TEST(Sharding, ALayerOfAHundredThousandMillionParametersDoesNotOverflow) {
  const std::int64_t elements = std::int64_t{100} << 30;
  const LayerCost layer{.weight_bytes = 4 * elements, .state_bytes = 8 * elements};
  EXPECT_EQ(shares_of(layer, false, {.replicas = 2, .shard_ranks = 2, .zero = 1}).states,
            4 * elements);
}

RankLedger ledger_of(const Dataflow& dataflow, const CostTable& costs, int micro_batches,
                     const ShardingRequest& sharding) {
  const Partition partition = plan_test::equal_stages(dataflow.num_layers, 1);
  const Schedule schedule =
      schedule::lower(schedule::build("1f1b", {1, micro_batches}), dataflow, partition,
                      {.sharing = sharing_of(sharding, dataflow, costs)});
  return make_ledger(schedule, dataflow, partition, costs,
                     simulate(schedule, dataflow, partition, costs), sharding)[0];
}

RankLedger ledger_of(int layers, int micro_batches, const ShardingRequest& sharding) {
  const Dataflow dataflow = plan_test::chain(layers);
  return ledger_of(dataflow, plan_test::equal_costs(dataflow, kLayer), micro_batches, sharding);
}

// The formulas of ZeRO, section 5, plus buffers that are named.
TEST(Sharding, TheLedgerFollowsTheFormulasPlusNamedBuffers) {
  constexpr int kLayers = 6;
  const double parameters = kLayers * kWeights / 4.0;
  // The pieces of reductions in flight: of all layers, or from stage 2 on of one, while the next
  // runs, with the whole gradients of both; in stage 3 the weights of the window's two.
  constexpr int kBuffers[] = {kLayers, kLayers, 3, 5};
  for (int zero = 0; zero <= 3; ++zero) {
    const RankLedger rank =
        ledger_of(kLayers, 4, {.replicas = 4, .shard_ranks = 4, .zero = zero, .reduce_each = true});
    const ModelStateBytes formula = zero_bytes(parameters, precision_convention("fp32"), zero, 4);
    EXPECT_EQ(rank.at_peak[ByteKind::kWeights], formula.weights);
    EXPECT_EQ(rank.at_peak[ByteKind::kGradients], formula.gradients);
    EXPECT_EQ(rank.at_peak[ByteKind::kStates], formula.states);
    EXPECT_EQ(rank.at_peak[ByteKind::kBuffers], kBuffers[zero] * kWeights) << zero;
    EXPECT_EQ(rank.timeline.front().bytes, rank.timeline.back().bytes);
  }
}

TEST(Sharding, ReducedOnceGradientsAreWholeUntilTheyAreAwaited) {
  const ShardingRequest once{.replicas = 4, .shard_ranks = 4, .zero = 2};
  const RankLedger rank = ledger_of(6, 4, once);
  EXPECT_EQ(rank.at_peak[ByteKind::kGradients], 6 * kWeights / 4 + 6 * kWeights);
  EXPECT_EQ(rank.at_peak[ByteKind::kBuffers], 6 * kWeights);  // all reductions are in flight
  EXPECT_EQ(rank.timeline.back().bytes, rank.timeline.front().bytes);
}

TEST(Sharding, ReductionsThatReadInPlaceNeedNoPieces) {
  ShardingRequest once{.replicas = 4, .shard_ranks = 4, .zero = 2, .copies_pieces = false};
  EXPECT_EQ(ledger_of(6, 4, once).at_peak[ByteKind::kBuffers], 0);
}

TEST(Sharding, FetchedLayersHaveTheirWholeWeightsInAWindow) {
  const ShardingRequest zero3{.replicas = 4, .shard_ranks = 4, .zero = 3, .copies_pieces = false};
  const RankLedger rank = ledger_of(6, 2, zero3);
  EXPECT_EQ(rank.at_peak[ByteKind::kWeights], 6 * kWeights / 4);
  EXPECT_EQ(rank.at_peak[ByteKind::kBuffers], 2 * kWeights);  // that which runs and the next
}

TEST(Sharding, TiedLayersKeepWeightsAndGradients) {
  Dataflow dataflow = plan_test::chain(3);
  dataflow.ties.push_back({.name = "table", .owner = 0, .users = {2}});
  const CostTable costs = plan_test::equal_costs(dataflow, kLayer);
  const RankLedger rank = ledger_of(
      dataflow, costs, 2, {.replicas = 2, .shard_ranks = 2, .zero = 3, .copies_pieces = false});
  EXPECT_EQ(rank.timeline.front().bytes, rank.timeline.back().bytes);
  EXPECT_EQ(rank.at_peak[ByteKind::kWeights], 2 * kWeights + kWeights / 2);
  EXPECT_EQ(rank.at_peak[ByteKind::kStates], 3 * kWeights);
}

TEST(Sharding, OneReplicaIsAsIfThereWereNoSharding) {
  for (int zero = 0; zero <= 3; ++zero) {
    const RankLedger rank = ledger_of(3, 2, {.zero = zero});
    EXPECT_EQ(rank.peak_bytes, ledger_of(3, 2, {}).peak_bytes);
    EXPECT_EQ(rank.at_peak[ByteKind::kBuffers], 0);
  }
}

TEST(Sharding, ResidentCostsAreWhatTheLedgerStartsWith) {
  const ShardingRequest sharding{.replicas = 8, .shard_ranks = 4, .zero = 3};
  const Dataflow dataflow = plan_test::chain(5);
  const CostTable costs = plan_test::equal_costs(dataflow, kLayer);
  std::int64_t sum = 0;
  for (const LayerCost& layer : resident_costs(costs, dataflow, sharding).layers) {
    sum += layer.weight_bytes + layer.gradient_bytes + layer.state_bytes;
  }
  EXPECT_EQ(sum, ledger_of(dataflow, costs, 2, sharding).timeline.front().bytes);
}

}  // namespace
}  // namespace strata
