// Tests where the pass offloads and fetches the inputs of recomputed layers, and what the validator
// rejects.
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/layout/example_models_test.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

constexpr LayerTiers kInputsAway{.activations = Tier::kHost};

std::vector<std::string> lines(const Program& program) {
  std::vector<std::string> texts;
  for (const Action& action : program) texts.push_back(to_string(action));
  return texts;
}

Schedule lowered(ScheduleKind kind, PipelineShape shape, int layers, const LayerSet& recompute,
                 const TierLayout& tiers, const Partition& partition) {
  return lower(build_schedule(kind, shape), chain(layers), partition,
               {.recompute = recompute, .tiers = tiers, .update = false});
}

TEST(ActivationOffloads, OffloadFollowsForwardAndFetchPrecedesRecomputeByOneAction) {
  const TierLayout tiers{.layers = std::vector(3, kInputsAway)};
  const Program program =
      lowered(ScheduleKind::kGpipe, {1, 1}, 3, {0, 1, 2}, tiers, {{0, 3}}).programs[0];
  // The last layer is recomputed at once, so it offloads nothing.
  EXPECT_EQ(lines(program),
            (std::vector<std::string>{
                "F s0 m0 [0,1)", "OA m0 [0,1)", "F s0 m0 [1,2)", "OA m0 [1,2)", "F s0 m0 [2,3)",
                "R s0 m0 [2,3)", "FA m0 [1,2)", "B s0 m0 [2,3)", "R s0 m0 [1,2)", "FA m0 [0,1)",
                "B s0 m0 [1,2)", "R s0 m0 [0,1)", "B s0 m0 [0,1)"}));
}

TEST(ActivationOffloads, OnlyRecomputedLayersOffload) {
  const TierLayout tiers{.layers = {kInputsAway, kInputsAway, {}}};
  const Program program =
      lowered(ScheduleKind::kGpipe, {1, 1}, 3, {1, 2}, tiers, {{0, 3}}).programs[0];
  for (const Action& action : program)
    if (action.op == Op::kOffloadActivations || action.op == Op::kFetchActivations)
      EXPECT_EQ(action.layers, (LayerRange{1, 2})) << to_string(action);
  EXPECT_EQ(std::ranges::count(program, Op::kOffloadActivations, &Action::op), 1);
}

TEST(ActivationOffloads, EveryScheduleIsLegalAndOffloadsEachInputOnce) {
  const TierLayout tiers{.layers = std::vector(8, kInputsAway)};
  for (const auto& [kind, ranks, virtual_stages] :
       {std::tuple(ScheduleKind::kGpipe, 2, 1), std::tuple(ScheduleKind::k1f1b, 4, 1),
        std::tuple(ScheduleKind::kInterleaved, 2, 2), std::tuple(ScheduleKind::kVertical, 1, 1)}) {
    const int stages = ranks * virtual_stages;
    const Partition partition = equal_stages(stages, 8 / stages);
    const Schedule schedule =
        lowered(kind, {ranks, 3, virtual_stages}, 8, LayerSet::all(8), tiers, partition);
    EXPECT_NO_THROW(validate(schedule, chain(8), partition, {.tiers = tiers})) << name_of(kind);
    int away = 0, back = 0;
    for (const Program& program : schedule.programs) {
      away += static_cast<int>(std::ranges::count(program, Op::kOffloadActivations, &Action::op));
      back += static_cast<int>(std::ranges::count(program, Op::kFetchActivations, &Action::op));
    }
    EXPECT_EQ(away, back) << name_of(kind);
    EXPECT_GE(away, 8 * 3 - 3 * stages) << name_of(kind);
  }
}

TEST(ActivationOffloads, ValidatorRejectsMissingInputs) {
  const TierLayout tiers{.layers = std::vector(3, kInputsAway)};
  const Partition partition{{0, 3}};
  const Schedule whole = lowered(ScheduleKind::kGpipe, {1, 1}, 3, {0, 1, 2}, tiers, partition);
  const auto refusal = [&](const Schedule& schedule, const TierLayout& layout) -> std::string {
    try {
      validate(schedule, chain(3), partition, {.tiers = layout});
    } catch (const UserError& error) {
      return error.text().what;
    }
    return "";
  };
  const auto without = [&](Op op) {
    Schedule schedule = whole;
    Program& program = schedule.programs[0];
    program.erase(std::ranges::find(program, op, &Action::op));
    return schedule;
  };
  EXPECT_EQ(refusal(whole, tiers), "");
  EXPECT_EQ(refusal(without(Op::kFetchActivations), tiers), "a recompute is out of place");
  EXPECT_EQ(refusal(without(Op::kOffloadActivations), tiers),
            "activations are fetched that are not on the host");
  EXPECT_EQ(refusal(whole, {}), "activations are offloaded out of place");
  Schedule twice = whole;
  twice.programs[0].insert(twice.programs[0].begin() + 2, twice.programs[0][1]);
  EXPECT_EQ(refusal(twice, tiers), "activations are offloaded out of place");
  // Neither fetched nor recomputed.
  Schedule lost = without(Op::kFetchActivations);
  Program& program = lost.programs[0];
  std::erase_if(program, [](const Action& action) {
    return action.op == Op::kRecompute && action.layers.begin == 1;
  });
  EXPECT_EQ(refusal(lost, tiers), "a backward runs while its inputs are on the host");
}

}  // namespace
}  // namespace strata
