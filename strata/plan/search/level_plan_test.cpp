// Plans whose layers compute different things again.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/plan/example_models_test.h"
#include "strata/plan/search/planner.h"
#include "strata/plan/text/plan_text.h"

namespace strata {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Eight layers of a transformer's proportions. Deeper levels free 7 of 9 MiB for 0.6 of a forward,
// then 1 for 0.2; a forward frees all 9.
PlanRequest request_of(RecomputeMode mode, std::int64_t device_bytes, bool with_levels = true) {
  PlanRequest request;
  request.dataflow = chain(8);
  const LayerCost layer{.forward_seconds = 10e-3,
                        .backward_seconds = 20e-3,
                        .weight_bytes = kMiB,
                        .gradient_bytes = kMiB,
                        .saved_bytes = 9 * kMiB};
  const CostTable cheap = equal_costs(request.dataflow, layer, {.bytes = kMiB});
  request.costs = cheap;
  const auto add = [&](Recompute level, std::int64_t saved, double seconds) {
    request.costs[level] = cheap;
    for (LayerCost& cost : request.costs[level].layers) {
      cost.saved_bytes = saved;
      cost.backward_seconds += seconds;
      cost.backward_transient_bytes = 9 * kMiB - saved;
    }
  };
  if (with_levels) {
    add(Recompute::kProducts, 2 * kMiB, 6e-3);
    add(Recompute::kAttention, kMiB, 8e-3);
  }
  set_shape(request, {2, 4});
  request.schedule = ScheduleKind::kGpipe;
  request.memory = {.device = {device_bytes},
                    .recompute = mode,
                    .weights = TierChoice::kDevice,
                    .states = TierChoice::kDevice,
                    .activations = TierChoice::kDevice};
  return request;
}

std::map<Recompute, int> counts_of(const Plan& plan) {
  std::map<Recompute, int> counts;
  for (int layer = 0; layer < std::ssize(plan.costs.layers); ++layer)
    ++counts[plan.decisions().levels.of(layer)];
  return counts;
}

TEST(LevelPlan, ModeSetsLevelOfAllLayers) {
  for (const auto& [mode, level] : {std::pair(RecomputeMode::kNone, Recompute::kNone),
                                    std::pair(RecomputeMode::kCheap, Recompute::kCheap),
                                    std::pair(RecomputeMode::kProducts, Recompute::kProducts),
                                    std::pair(RecomputeMode::kAttention, Recompute::kAttention),
                                    std::pair(RecomputeMode::kFull, Recompute::kCheap),
                                    std::pair(RecomputeMode::kAuto, Recompute::kCheap)}) {
    SCOPED_TRACE(name_of(mode));
    const PlanRequest request = request_of(mode, 0);
    const Plan plan = make_plan(request);
    EXPECT_EQ(plan.decisions().levels, RecomputeLevels(level));
    EXPECT_EQ(plan.costs.layers[3].saved_bytes, request.costs[level].layers[3].saved_bytes);
    EXPECT_EQ(plan.decisions().recompute.size(), mode == RecomputeMode::kFull ? 8 : 0);
  }
}

TEST(LevelPlan, DeeperModesNeedLessMemoryAndMoreTime) {
  const Plan cheap = make_plan(request_of(RecomputeMode::kCheap, 0));
  const Plan products = make_plan(request_of(RecomputeMode::kProducts, 0));
  const Plan attention = make_plan(request_of(RecomputeMode::kAttention, 0));
  EXPECT_LT(peak_bytes(products.ledger), peak_bytes(cheap.ledger) - 4 * 3 * 6 * kMiB);
  EXPECT_LT(peak_bytes(attention.ledger), peak_bytes(products.ledger));
  EXPECT_GT(products.simulation.step_seconds, cheap.simulation.step_seconds);
  EXPECT_GT(attention.simulation.step_seconds, products.simulation.step_seconds);
}

TEST(LevelPlan, AutoIsFasterWithLevelsThanWithWholeLayers) {
  const std::int64_t most = peak_bytes(make_plan(request_of(RecomputeMode::kCheap, 0)).ledger);
  double with = 0, without = 0;
  for (int percent = 95; percent >= 35; percent -= 10) {
    SCOPED_TRACE(percent);
    const std::int64_t budget = most * percent / 100;
    const Plan plan = make_plan(request_of(RecomputeMode::kAuto, budget));
    const Plan whole = make_plan(request_of(RecomputeMode::kAuto, budget, false));
    EXPECT_LE(peak_bytes(plan.ledger), budget);
    EXPECT_LE(plan.simulation.step_seconds, whole.simulation.step_seconds * 1.001);
    EXPECT_GT(counts_of(plan)[Recompute::kProducts] + counts_of(plan)[Recompute::kAttention], 0);
    with += plan.simulation.step_seconds;
    without += whole.simulation.step_seconds;
  }
  EXPECT_LT(with, 0.97 * without);
}

TEST(LevelPlan, IsFollowedByOtherProcesses) {
  const std::int64_t most = peak_bytes(make_plan(request_of(RecomputeMode::kCheap, 0)).ledger);
  const PlanRequest request = request_of(RecomputeMode::kAuto, most / 2);
  const Plan plan = make_plan(request);
  ASSERT_FALSE(plan.decisions().levels.other_layers().empty());
  const std::string text = decisions_text(plan);
  PlanRequest slower = request;
  for (CostTable& costs : slower.costs)
    for (LayerCost& layer : costs.layers) layer.forward_seconds *= 3;
  const Plan followed = follow_plan(slower, text);
  EXPECT_EQ(followed.decisions().levels, plan.decisions().levels);
  EXPECT_EQ(followed.decisions().recompute, plan.decisions().recompute);
  EXPECT_EQ(peak_bytes(followed.ledger), peak_bytes(plan.ledger));
  EXPECT_EQ(decisions_text(followed), text);
}

// The state of a run on a disk keeps its place; what is recomputed need not stay.
TEST(LevelPlan, RunThatResumesInAnotherModeFollowsThatMode) {
  const std::int64_t most = peak_bytes(make_plan(request_of(RecomputeMode::kCheap, 0)).ledger);
  constexpr RecomputeMode kModes[] = {RecomputeMode::kNone,     RecomputeMode::kCheap,
                                      RecomputeMode::kProducts, RecomputeMode::kAttention,
                                      RecomputeMode::kFull,     RecomputeMode::kAuto};
  for (const RecomputeMode before : kModes) {
    const bool is_auto = before == RecomputeMode::kAuto;
    const Plan first = make_plan(request_of(before, is_auto ? most / 2 : 0));
    for (const RecomputeMode now : kModes) {
      SCOPED_TRACE(testing::Message() << name_of(before) << " to " << name_of(now));
      const Plan plan = follow_plan(request_of(now, 0), decisions_text(first));
      EXPECT_EQ(plan.decisions().partition, first.decisions().partition);
      if (now == before || now == RecomputeMode::kAuto) {
        EXPECT_EQ(plan.decisions().levels, first.decisions().levels);
        EXPECT_EQ(plan.decisions().recompute, first.decisions().recompute);
      } else {
        EXPECT_EQ(plan.decisions().levels, RecomputeLevels(level_of(now)));
        EXPECT_EQ(plan.decisions().recompute.size(), now == RecomputeMode::kFull ? 8 : 0);
      }
    }
  }
  // A mode that does not fit is refused, not followed.
  const std::string text = decisions_text(make_plan(request_of(RecomputeMode::kAuto, most / 2)));
  EXPECT_THROW(follow_plan(request_of(RecomputeMode::kNone, most / 2), text), UserError);
}

TEST(LevelPlan, FollowsTextsOfEarlierVersions) {
  const PlanRequest request = request_of(RecomputeMode::kAuto, 0);
  nlohmann::json text = nlohmann::json::parse(decisions_text(make_plan(request)));
  text.erase("mode");
  text.erase("level");
  text["recompute"] = {1, 2};
  const Plan plan = follow_plan(request, text.dump());
  EXPECT_EQ(plan.decisions().recompute, (LayerSet{1, 2}));
  EXPECT_EQ(plan.decisions().levels, RecomputeLevels());
}

// A budget that only deep levels fit, because a whole layer makes all that it saves at once.
TEST(LevelPlan, AutoFitsWhatAttentionFits) {
  PlanRequest request = request_of(RecomputeMode::kAttention, 0);
  set_shape(request, {1, 1});
  const std::int64_t attention = peak_bytes(make_plan(request).ledger);
  request.memory.recompute = RecomputeMode::kFull;
  for (LayerCost& layer : request.costs[Recompute::kCheap].layers)
    layer.backward_transient_bytes = 16 * kMiB;
  ASSERT_GT(peak_bytes(make_plan(request).ledger), attention);
  request.memory.recompute = RecomputeMode::kAuto;
  request.memory.device.count = attention;
  EXPECT_LE(peak_bytes(make_plan(request).ledger), attention);
}

TEST(LevelPlan, NamesLevelsInTextAndJson) {
  const std::int64_t most = peak_bytes(make_plan(request_of(RecomputeMode::kCheap, 0)).ledger);
  const Plan plan = make_plan(request_of(RecomputeMode::kAuto, most * 8 / 10));
  const std::vector<int> deeper = plan.decisions().levels.other_layers();
  ASSERT_FALSE(deeper.empty());
  EXPECT_EQ(counts_of(plan)[Recompute::kAttention], 0);
  const std::string text = plan_text(plan);
  const std::string names = "auto: products in " + std::to_string(deeper.size()) +
                            " of 8 layers (" + plan.costs.layers[deeper[0]].name;
  EXPECT_NE(text.find("recompute  " + names), std::string::npos) << text;
  const nlohmann::json json = to_json(plan);
  EXPECT_EQ(json["recompute"]["levels"].size(), deeper.size());
  EXPECT_EQ(json["recompute"]["levels"][plan.costs.layers[deeper[0]].name], "products");
}

}  // namespace
}  // namespace strata
