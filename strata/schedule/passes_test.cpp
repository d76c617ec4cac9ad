#include "strata/schedule/passes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/layout/example_models_test.h"
#include "strata/schedule/builders.h"

namespace strata {
namespace {

std::vector<std::string> lines(const Program& program) {
  std::vector<std::string> texts;
  for (const Action& action : program) texts.push_back(to_string(action));
  return texts;
}

constexpr LayerShards kReduced{.reduced = true};
constexpr LayerShards kSharded{.states = true, .gradients = true, .weights = true};

int count(const Program& program, Op op) {
  return static_cast<int>(std::count_if(program.begin(), program.end(),
                                        [op](const Action& action) { return action.op == op; }));
}

TEST(WithLayers, AssignsStageLayersToEveryComputeAction) {
  const Schedule schedule = with_layers(
      interleaved({.ranks = 2, .micro_batches = 2, .virtual_stages = 2}), {{0, 1, 3, 6, 10}});
  for (const Program& program : schedule.programs) {
    for (const Action& action : program) {
      EXPECT_EQ(action.layers.size(), action.stage + 1) << to_string(action);
    }
  }
}

TEST(WithLayers, RejectsDifferentNumberOfStages) {
  EXPECT_THROW(with_layers(gpipe({.ranks = 2}), {{0, 1, 2, 3}}), InternalError);
}

TEST(WithRecompute, SplitsBackwardsAtRecomputedLayersOnly) {
  const Schedule schedule = with_recompute(with_layers(gpipe({.ranks = 1}), {{0, 6}}), {2, 3});
  EXPECT_EQ(
      lines(schedule.programs[0]),
      (std::vector<std::string>{"F s0 m0 [0,6)", "B s0 m0 [4,6)", "R s0 m0 [3,4)", "B s0 m0 [3,4)",
                                "R s0 m0 [2,3)", "B s0 m0 [2,3)", "B s0 m0 [0,2)"}));
}

TEST(WithRecompute, WithoutRecomputedLayersChangesNothing) {
  const Schedule schedule = with_layers(gpipe({.ranks = 1, .micro_batches = 2}), {{0, 3}});
  EXPECT_EQ(with_recompute(schedule, {}).programs, schedule.programs);
}

TEST(WithTransfers, RecomputeStartsBeforeGradientIsReceived) {
  const Schedule schedule =
      with_transfers(with_recompute(with_layers(gpipe({.ranks = 2}), {{0, 2, 3}}), {0, 1, 2}),
                     chain(3), {{0, 2, 3}});
  EXPECT_EQ(lines(schedule.programs[0]),
            (std::vector<std::string>{"F s0 m0 [0,2)", "SF v1 m0 to rank 1", "R s0 m0 [1,2)",
                                      "RB v1<-2 m0 from rank 1", "B s0 m0 [1,2)", "R s0 m0 [0,1)",
                                      "B s0 m0 [0,1)"}));
  EXPECT_EQ(lines(schedule.programs[1]),
            (std::vector<std::string>{"RF v1 m0 from rank 0", "F s1 m0 [2,3)", "R s1 m0 [2,3)",
                                      "B s1 m0 [2,3)", "SB v1<-2 m0 to rank 0"}));
}

TEST(WithTransfers, ValueIsSentOnceToRankWithTwoConsumingStages) {
  // Stages 0 and 2 are on rank 0, stages 1 and 3 on rank 1. Layers 1, 2 and 3 read the skip of
  // layer 0.
  Dataflow dataflow = chain(4);
  dataflow.values.push_back({.name = "skip", .producer = 0, .consumers = {1, 2, 3}});
  const Partition partition = equal_stages(4, 1);
  const Schedule schedule = with_transfers(
      with_layers(interleaved({.ranks = 2, .virtual_stages = 2}), partition), dataflow, partition);
  EXPECT_EQ(lines(schedule.programs[0]),
            (std::vector<std::string>{
                "F s0 m0 [0,1)", "SF v0 m0 to rank 1", "SF v4 m0 to rank 1", "RF v1 m0 from rank 1",
                "F s2 m0 [2,3)", "SF v2 m0 to rank 1", "RB v2<-3 m0 from rank 1", "B s2 m0 [2,3)",
                "SB v1<-2 m0 to rank 1", "RB v0<-1 m0 from rank 1", "RB v4<-3 m0 from rank 1",
                "RB v4<-1 m0 from rank 1", "B s0 m0 [0,1)"}));
  EXPECT_EQ(lines(schedule.programs[1]),
            (std::vector<std::string>{
                "RF v0 m0 from rank 0", "RF v4 m0 from rank 0", "F s1 m0 [1,2)",
                "SF v1 m0 to rank 0", "RF v2 m0 from rank 0", "F s3 m0 [3,4)", "B s3 m0 [3,4)",
                "SB v2<-3 m0 to rank 0", "SB v4<-3 m0 to rank 0", "RB v1<-2 m0 from rank 0",
                "B s1 m0 [1,2)", "SB v0<-1 m0 to rank 0", "SB v4<-1 m0 to rank 0"}));
}

TEST(WithTransfers, ValueWithoutGradientReturnsNone) {
  Dataflow dataflow = chain(2);
  dataflow.values[0].differentiable = false;
  const Schedule schedule =
      with_transfers(with_layers(gpipe({.ranks = 2}), {{0, 1, 2}}), dataflow, {{0, 1, 2}});
  EXPECT_EQ(count(schedule.programs[0], Op::kSendActivation), 1);
  EXPECT_EQ(count(schedule.programs[0], Op::kReceiveGradient), 0);
  EXPECT_EQ(count(schedule.programs[1], Op::kSendGradient), 0);
}

TEST(WithTransfers, StagesOnOneRankExchangeNoMessages) {
  const Partition partition = equal_stages(3, 2);
  const Schedule schedule = with_transfers(
      with_layers(gpipe({.ranks = 1, .micro_batches = 2, .virtual_stages = 3}), partition),
      chain_with_skip_and_tie(6), partition);
  for (const Action& action : schedule.programs[0]) EXPECT_TRUE(is_compute(action.op));
}

TEST(WithUpdate, TiedGradientsPrecedeNormAndTiedWeightsFollowUpdate) {
  Dataflow dataflow = chain(3);
  dataflow.ties.push_back({.name = "a", .owner = 0, .users = {1, 2}});
  dataflow.ties.push_back({.name = "b", .owner = 2, .users = {0}});
  const Schedule schedule =
      with_update({.num_micro_batches = 1, .rank_of_stage = {0, 1}, .programs = {{}, {}}}, dataflow,
                  {{0, 2, 3}});
  EXPECT_EQ(lines(schedule.programs[0]),
            (std::vector<std::string>{"RG t0<-2 from rank 1", "SG t1<-0 to rank 1", "TG t0", "N",
                                      "U [0,1)", "U [1,2)", "SW t0->2 to rank 1",
                                      "RW t1->0 from rank 1"}));
  EXPECT_EQ(lines(schedule.programs[1]),
            (std::vector<std::string>{"SG t0<-2 to rank 0", "RG t1<-0 from rank 0", "TG t1", "N",
                                      "U [2,3)", "RW t0->2 from rank 0", "SW t1->0 to rank 0"}));
}

constexpr LayerTiers kOnHost{Tier::kHost, Tier::kHost, Tier::kHost};

Schedule chain_of(int layers, int micro_batches = 1) {
  return with_layers(gpipe({.ranks = 1, .micro_batches = micro_batches}), {{0, layers}});
}

TEST(WithPrefetches, WindowOfWeightsFollowsActions) {
  const Schedule schedule =
      with_prefetches(chain_of(3), chain(3), {{0, 3}}, {.layers = {{}, kSharded, kSharded}});
  EXPECT_EQ(lines(schedule.programs[0]),
            (std::vector<std::string>{"FW [1,2)", "FW [2,3)", "F s0 m0 [0,1)", "F s0 m0 [1,2)",
                                      "F s0 m0 [2,3)", "B s0 m0 [2,3)", "XW [2,3)", "B s0 m0 [1,2)",
                                      "XW [1,2)", "B s0 m0 [0,1)"}));
}

TEST(WithPrefetches, LongStagesReleaseWeightsBeforeRefetch) {
  const Schedule schedule =
      with_prefetches(with_layers(forward_only({.ranks = 1, .micro_batches = 1}), {{0, 3}}),
                      chain(3), {{0, 3}}, {.layers = {kSharded, kSharded, kSharded}});
  EXPECT_EQ(
      lines(schedule.programs[0]),
      (std::vector<std::string>{"FW [0,1)", "FW [1,2)", "F s0 m0 [0,1)", "XW [0,1)", "FW [2,3)",
                                "F s0 m0 [1,2)", "XW [1,2)", "F s0 m0 [2,3)", "XW [2,3)"}));
}

TEST(WithPrefetches, EvictsLayerWithFarthestNextUse) {
  const TierLayout tiers{.layers = {kOnHost, kOnHost, kOnHost, kOnHost}, .window = 3};
  const Schedule schedule = with_prefetches(chain_of(4), chain(4), {{0, 4}}, {}, tiers);
  EXPECT_EQ(
      lines(schedule.programs[0]),
      (std::vector<std::string>{
          "FW [0,1)", "FW [1,2)", "FW [2,3)", "F s0 m0 [0,1)", "F s0 m0 [1,2)", "XW [0,1)",
          "FW [3,4)", "F s0 m0 [2,3)", "F s0 m0 [3,4)", "B s0 m0 [3,4)", "XW [3,4)", "FW [0,1)",
          "B s0 m0 [2,3)", "XW [2,3)", "B s0 m0 [1,2)", "XW [1,2)", "B s0 m0 [0,1)", "XW [0,1)"}));
}

TEST(WithPrefetches, WindowOfOneStreamsLayerByLayer) {
  const TierLayout tiers{.layers = {kOnHost, kOnHost}, .window = 1};
  const Schedule schedule = with_prefetches(chain_of(2), chain(2), {{0, 2}}, {}, tiers);
  EXPECT_EQ(lines(schedule.programs[0]),
            (std::vector<std::string>{"FW [0,1)", "F s0 m0 [0,1)", "XW [0,1)", "FW [1,2)",
                                      "F s0 m0 [1,2)", "B s0 m0 [1,2)", "XW [1,2)", "FW [0,1)",
                                      "B s0 m0 [0,1)", "XW [0,1)"}));
}

// The fewest fetches that any order needs, by exhaustive search over evictions.
int fewest_fetches(const std::vector<int>& uses, std::size_t at, std::vector<int> held, int most) {
  if (at == uses.size()) return 0;
  const auto here = std::find(held.begin(), held.end(), uses[at]);
  if (here != held.end()) return fewest_fetches(uses, at + 1, held, most);
  if (static_cast<int>(held.size()) < most) {
    held.push_back(uses[at]);
    return 1 + fewest_fetches(uses, at + 1, held, most);
  }
  int fewest = 1 << 20;
  for (std::size_t victim = 0; victim < held.size(); ++victim) {
    std::vector<int> rest = held;
    rest[victim] = uses[at];
    fewest = std::min(fewest, 1 + fewest_fetches(uses, at + 1, rest, most));
  }
  return fewest;
}

// One slot of the window is reserved for the layer that is being fetched.
TEST(WithPrefetches, MatchesFewestPossibleFetches) {
  for (const int micro_batches : {1, 2}) {
    for (int window = 1; window <= 5; ++window) {
      TierLayout tiers{.layers = std::vector(5, kOnHost), .window = window};
      const Schedule plain = chain_of(5, micro_batches);
      const Program program = with_prefetches(plain, chain(5), {{0, 5}}, {}, tiers).programs[0];
      std::vector<int> uses;
      for (const Action& action : program)
        if (is_compute(action.op)) uses.push_back(action.layers.begin);
      const int fetches = count(program, Op::kPrefetchWeights);
      const std::string name =
          "window " + std::to_string(window) + ", micro-batches " + std::to_string(micro_batches);
      EXPECT_GE(fetches, fewest_fetches(uses, 0, {}, window)) << name;
      const int choices = window == 1 || window == 5 ? window : window - 1;
      EXPECT_LE(fetches, fewest_fetches(uses, 0, {}, choices)) << name;
      int held = 0;
      for (const Action& action : program) {
        held += (action.op == Op::kPrefetchWeights) - (action.op == Op::kReleaseWeights);
        EXPECT_LE(held, window) << name;
      }
    }
  }
}

TEST(WithPrefetches, VerticalFetchesLayerOnceForAllMicroBatches) {
  const TierLayout tiers{.layers = {kOnHost, kOnHost, kOnHost}, .window = 2};
  const Schedule schedule = lower(vertical({.ranks = 1, .micro_batches = 2}), chain(3), {{0, 3}},
                                  {.recompute = {1}, .tiers = tiers});
  Program program = schedule.programs[0];
  program.erase(std::find_if(program.begin(), program.end(),
                             [](const Action& a) { return a.op == Op::kReduceNormAndLoss; }),
                program.end());
  EXPECT_EQ(lines(program),
            (std::vector<std::string>{
                "FW [0,1)",      "FW [1,2)",      "F s0 m0 [0,1)", "F s0 m1 [0,1)", "XW [0,1)",
                "FW [2,3)",      "F s0 m0 [1,2)", "F s0 m1 [1,2)", "F s0 m0 [2,3)", "F s0 m1 [2,3)",
                "B s0 m0 [2,3)", "B s0 m1 [2,3)", "OG [2,3)",      "XW [2,3)",      "FW [0,1)",
                "R s0 m0 [1,2)", "B s0 m0 [1,2)", "R s0 m1 [1,2)", "B s0 m1 [1,2)", "OG [1,2)",
                "XW [1,2)",      "B s0 m0 [0,1)", "B s0 m1 [0,1)", "OG [0,1)",      "XW [0,1)"}));
}

TEST(WithPrefetches, UserOfTiedWeightFetchesItsOwner) {
  const Dataflow dataflow = chain_with_skip_and_tie(4);
  TierLayout tiers{.layers = {kOnHost, kOnHost, kOnHost, {}}, .window = 1};
  const Program program = with_prefetches(chain_of(4), dataflow, {{0, 4}}, {}, tiers).programs[0];
  EXPECT_EQ(lines(program),
            (std::vector<std::string>{
                "FW [0,1)",      "F s0 m0 [0,1)", "XW [0,1)",      "FW [1,2)", "F s0 m0 [1,2)",
                "XW [1,2)",      "FW [2,3)",      "F s0 m0 [2,3)", "XW [2,3)", "FW [0,1)",
                "F s0 m0 [3,4)", "B s0 m0 [3,4)", "XW [0,1)",      "FW [2,3)", "B s0 m0 [2,3)",
                "XW [2,3)",      "FW [1,2)",      "B s0 m0 [1,2)", "XW [1,2)", "FW [0,1)",
                "B s0 m0 [0,1)", "XW [0,1)"}));
}

TEST(WithOffloads, GradientsAreOffloadedAfterLastBackwardAndTiedOnesAfterTheirSum) {
  const Dataflow dataflow = chain_with_skip_and_tie(4);
  const TierLayout tiers{.layers = {kOnHost, {Tier::kDevice, Tier::kHost, Tier::kHost}, {}, {}}};
  const Program program =
      lower(gpipe({.ranks = 1, .micro_batches = 2}), dataflow, {{0, 4}}, {.tiers = tiers})
          .programs[0];
  const auto backwards = std::find_if(program.begin(), program.end(),
                                      [](const Action& a) { return a.op == Op::kBackward; });
  EXPECT_EQ(lines(Program(backwards, program.end())),
            (std::vector<std::string>{
                "B s0 m0 [3,4)", "B s0 m0 [2,3)", "B s0 m0 [1,2)", "B s0 m0 [0,1)", "B s0 m1 [3,4)",
                "B s0 m1 [2,3)", "B s0 m1 [1,2)", "OG [1,2)", "B s0 m1 [0,1)", "XW [0,1)", "TG t0",
                "OG [0,1)", "N", "U [0,1)", "U [1,2)", "FW [1,2)", "U [2,3)", "U [3,4)"}));
}

TEST(WithOffloads, LayerIsUpdatedBeforeNormIfAllowed) {
  const TierLayout tiers{.layers = {kOnHost, kOnHost}, .window = 2, .updates_at_once = true};
  const Program program =
      lower(gpipe({.ranks = 1}), chain(2), {{0, 2}}, {.tiers = tiers}).programs[0];
  EXPECT_EQ(lines(program),
            (std::vector<std::string>{"FW [0,1)", "FW [1,2)", "F s0 m0 [0,1)", "F s0 m0 [1,2)",
                                      "B s0 m0 [1,2)", "OG [1,2)", "U [1,2)", "XW [1,2)",
                                      "B s0 m0 [0,1)", "OG [0,1)", "U [0,1)", "XW [0,1)", "N"}));
}

TEST(WithOffloads, GradientsOnDeviceAreCopiedForHostUpdate) {
  const TierLayout tiers{.layers = {{Tier::kDevice, Tier::kDevice, Tier::kHost}}};
  const Program program =
      lower(gpipe({.ranks = 1}), chain(1), {{0, 1}}, {.tiers = tiers}).programs[0];
  EXPECT_EQ(lines(program), (std::vector<std::string>{"F s0 m0 [0,1)", "B s0 m0 [0,1)", "OG [0,1)",
                                                      "N", "U [0,1)", "FW [0,1)"}));
}

TEST(WithReductions, OncePerStepStartsAfterLastBackwardOfEachLayer) {
  const Dataflow dataflow = chain_with_skip_and_tie(4);
  const ShardLayout shards{.layers = {kReduced, kReduced, {}, kReduced}};
  const Schedule schedule =
      lower(gpipe({.ranks = 1, .micro_batches = 2}), dataflow, {{0, 4}}, {.shards = shards});
  EXPECT_EQ(lines(schedule.programs[0]),
            (std::vector<std::string>{
                "F s0 m0 [0,4)", "F s0 m1 [0,4)", "B s0 m0 [0,4)", "B s0 m1 [3,4)", "DG [3,4)",
                "B s0 m1 [1,3)", "DG [1,2)", "B s0 m1 [0,1)", "TG t0", "DG [0,1)", "AG [3,4)",
                "AG [1,2)", "AG [0,1)", "N", "U [0,1)", "U [1,2)", "U [2,3)", "U [3,4)"}));
}

TEST(WithReductions, EachMicroBatchKeepsOneReductionInProgress) {
  const LayerShards each{.states = true, .gradients = true, .reduced = true, .reduced_each = true};
  const ShardLayout shards{.layers = {each, each}};
  const Schedule schedule =
      lower(gpipe({.ranks = 1, .micro_batches = 2}), chain(2), {{0, 2}}, {.shards = shards});
  EXPECT_EQ(lines(schedule.programs[0]),
            (std::vector<std::string>{"F s0 m0 [0,2)", "F s0 m1 [0,2)", "B s0 m0 [1,2)",
                                      "DG m0 [1,2)", "B s0 m0 [0,1)", "AG m0 [1,2)", "DG m0 [0,1)",
                                      "B s0 m1 [1,2)", "AG m0 [0,1)", "DG m1 [1,2)",
                                      "B s0 m1 [0,1)", "AG m1 [1,2)", "DG m1 [0,1)", "AG m1 [0,1)",
                                      "N", "U [0,1)", "U [1,2)", "GW [0,1)", "GW [1,2)"}));
}

TEST(WithReductions, SingleLayerAwaitsItsPreviousReduction) {
  const ShardLayout shards{.layers = {kReduced, {.reduced = true, .reduced_each = true}}};
  const Schedule schedule =
      lower(gpipe({.ranks = 1, .micro_batches = 2}), chain(2), {{0, 2}}, {.shards = shards});
  EXPECT_EQ(lines(schedule.programs[0]),
            (std::vector<std::string>{"F s0 m0 [0,2)", "F s0 m1 [0,2)", "B s0 m0 [1,2)",
                                      "DG m0 [1,2)", "B s0 m0 [0,1)", "AG m0 [1,2)",
                                      "B s0 m1 [1,2)", "DG m1 [1,2)", "B s0 m1 [0,1)", "DG [0,1)",
                                      "AG m1 [1,2)", "AG [0,1)", "N", "U [0,1)", "U [1,2)"}));
}

TEST(Lower, ForwardOnlyProgramsHaveNoUpdate) {
  const Schedule schedule =
      lower(forward_only({.ranks = 2, .micro_batches = 2}), chain_with_skip_and_tie(4),
            equal_stages(2, 2), {.update = false});
  for (const Program& program : schedule.programs) {
    EXPECT_EQ(count(program, Op::kForward), 2);
    EXPECT_EQ(count(program, Op::kReduceNormAndLoss) + count(program, Op::kUpdate), 0);
  }
  EXPECT_EQ(count(schedule.programs[1], Op::kReceiveActivation), 4);
}

}  // namespace
}  // namespace strata
