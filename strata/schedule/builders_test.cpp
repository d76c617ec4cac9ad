#include "strata/schedule/builders.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/layout/example_models_test.h"
#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

std::string orders(const Program& program) {
  std::string text;
  for (const Action& action : program) {
    text += (text.empty() ? "" : " ") + std::string(kind_of(action.op)) +
            std::to_string(action.micro_batch);
  }
  return text;
}

TEST(Builders, OneRank1f1bAlternatesAndGpipeRunsForwardsFirst) {
  EXPECT_EQ(orders(one_f_one_b({.ranks = 1, .micro_batches = 3}).programs[0]), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(orders(interleaved({.ranks = 1, .micro_batches = 2}).programs[0]), "F0 B0 F1 B1");
  EXPECT_EQ(orders(gpipe({.ranks = 1, .micro_batches = 3}).programs[0]), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(orders(forward_only({.ranks = 1, .micro_batches = 2}).programs[0]), "F0 F1");
}

TEST(Builders, FewMicroBatchesShortenWarmUpOf1f1b) {
  const Schedule schedule = one_f_one_b({.ranks = 4, .micro_batches = 2});
  EXPECT_EQ(orders(schedule.programs[0]), "F0 F1 B0 B1");
  EXPECT_EQ(orders(schedule.programs[2]), "F0 F1 B0 B1");
  EXPECT_EQ(orders(schedule.programs[3]), "F0 B0 F1 B1");
}

TEST(Builders, GpipeRunsVirtualStagesOneByOne) {
  const Schedule schedule = gpipe({.ranks = 2, .micro_batches = 2, .virtual_stages = 2});
  std::vector<std::pair<int, int>> visits;
  for (const Action& action : schedule.programs[1]) {
    visits.emplace_back(action.stage, action.micro_batch);
  }
  EXPECT_EQ(visits, (std::vector<std::pair<int, int>>{
                        {1, 0}, {1, 1}, {3, 0}, {3, 1}, {3, 0}, {3, 1}, {1, 0}, {1, 1}}));
}

TEST(Builders, StagesAreAssignedRoundRobin) {
  const Schedule schedule = interleaved({.ranks = 3, .micro_batches = 1, .virtual_stages = 2});
  EXPECT_EQ(schedule.rank_of_stage, (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(schedule.num_ranks(), 3);
  EXPECT_EQ(schedule.num_stages(), 6);
}

int stages_of(ScheduleKind kind) {
  const int fixed = traits_of(kind).stages_per_rank;
  return fixed > 0 ? fixed : 3;
}

TEST(Builders, EveryUnitOccursOnceAndBackwardsAscend) {
  for (const ScheduleKind kind : kBuiltSchedules) {
    const PipelineShape shape{.ranks = 3, .micro_batches = 5, .virtual_stages = stages_of(kind)};
    const Schedule schedule = build_schedule(kind, shape);
    EXPECT_EQ(schedule.kind, kind);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const int stages = schedule.num_stages();
      std::vector<int> forwards(stages), inputs(stages), weights(stages);
      for (const Action& action : schedule.programs[rank]) {
        EXPECT_EQ(schedule.rank_of_stage[action.stage], rank);
        const auto count = [&](std::vector<int>& next) {
          EXPECT_EQ(action.micro_batch, next[action.stage]++) << name_of(kind);
        };
        if (action.op == Op::kForward) count(forwards);
        if (makes_input_gradients(action.op)) count(inputs);
        if (ends_weight_gradients(action.op)) count(weights);
      }
      for (int s = 0; s < stages; ++s) {
        if (schedule.rank_of_stage[s] != rank) continue;
        const int backwards = kind == ScheduleKind::kForward ? 0 : 5;
        EXPECT_EQ(forwards[s], 5);
        EXPECT_EQ(inputs[s], backwards);
        EXPECT_EQ(weights[s], backwards);
      }
    }
  }
}

TEST(Builders, InFlightBoundsMatchPublishedOnes) {
  const PipelineShape shape{.ranks = 8, .micro_batches = 64};
  EXPECT_EQ(in_flight_bound(ScheduleKind::k1f1b, shape, 0), 8);
  EXPECT_EQ(in_flight_bound(ScheduleKind::k1f1b, shape, 7), 1);
  EXPECT_EQ(in_flight_bound(ScheduleKind::k1f1b, {.ranks = 8, .micro_batches = 3}, 0), 3);
  EXPECT_EQ(in_flight_bound(ScheduleKind::kGpipe, shape, 5), 64);
  EXPECT_EQ(in_flight_bound(ScheduleKind::kForward, shape, 5), 1);
  const PipelineShape two{.ranks = 8, .micro_batches = 64, .virtual_stages = 2};
  const PipelineShape four{.ranks = 8, .micro_batches = 64, .virtual_stages = 4};
  EXPECT_EQ(in_flight_bound(ScheduleKind::kInterleaved, two, 0), 23);
  EXPECT_EQ(in_flight_bound(ScheduleKind::kInterleaved, two, 7), 9);
  EXPECT_EQ(in_flight_bound(ScheduleKind::kInterleaved, four, 0), 39);
  EXPECT_EQ(in_flight_bound(ScheduleKind::kInterleaved, four, 7), 25);
}

TEST(Builders, CountsBelowOneAreRejected) {
  for (const ScheduleKind kind : kBuiltSchedules) {
    EXPECT_THROW(build_schedule(kind, {.ranks = 0}), UserError) << name_of(kind);
    EXPECT_THROW(build_schedule(kind, {.ranks = 1, .micro_batches = 0}), UserError)
        << name_of(kind);
    EXPECT_THROW(build_schedule(kind, {.ranks = 1, .micro_batches = 1, .virtual_stages = 0}),
                 UserError);
  }
  try {
    gpipe({.ranks = 2, .micro_batches = -3});
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().what, "the number of micro-batches is too small");
    EXPECT_EQ(error.text().got, "-3");
  }
}

TEST(Builders, VirtualStagesWith1f1bAreRejected) {
  try {
    one_f_one_b({.ranks = 2, .micro_batches = 4, .virtual_stages = 2});
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(error.text().fix.find("interleaved"), std::string::npos);
  }
}

// Every schedule of every small shape is legal for a model with a skip and a tie.

constexpr int kMaxRanks = 8;
constexpr int kMaxMicroBatches = 17;
constexpr int kMaxVirtualStages = 4;
constexpr int kLayersAStage = 2;

// Every third layer, so that stages are split at all positions.
LayerSet third_layers(int num_layers) {
  LayerSet layers;
  for (int l = 0; l < num_layers; l += 3) layers.add(l);
  return layers;
}

void expect_legal(ScheduleKind kind, PipelineShape shape, bool recompute) {
  const bool backward = kind != ScheduleKind::kForward;
  const int stages = shape.ranks * shape.virtual_stages;
  const Dataflow dataflow = chain_with_skip_and_tie(stages * kLayersAStage);
  const Partition partition = equal_stages(stages, kLayersAStage);
  ValidateOptions options{.backward = backward, .in_flight_bound = {}};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    options.in_flight_bound.push_back(in_flight_bound(kind, shape, rank));
  }
  const LowerOptions lowering{
      .recompute = recompute ? third_layers(dataflow.num_layers) : LayerSet{}, .update = backward};
  const Schedule schedule = lower(build_schedule(kind, shape), dataflow, partition, lowering);
  // The bounds are tight, except where few micro-batches cut a group short.
  const Validation validation = validate(schedule, dataflow, partition, options);
  if (shape.micro_batches % shape.ranks == 0) {
    EXPECT_EQ(validation.peak_in_flight, options.in_flight_bound)
        << name_of(kind) << " p" << shape.ranks << " m" << shape.micro_batches << " v"
        << shape.virtual_stages;
  }
}

void expect_all_shapes_legal(ScheduleKind kind) {
  const int fixed = traits_of(kind).stages_per_rank;
  const int first = fixed > 0 ? fixed : 1, last = fixed > 0 ? fixed : kMaxVirtualStages;
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      for (int v = first; v <= last; ++v) {
        for (const bool recompute : {false, true}) {
          ASSERT_NO_THROW(expect_legal(kind, {p, m, v}, recompute))
              << name_of(kind) << " p" << p << " m" << m << " v" << v
              << (recompute ? " recompute" : "");
        }
      }
    }
  }
}

class EverySchedule : public ::testing::TestWithParam<ScheduleKind> {};

TEST_P(EverySchedule, IsLegalDeadlockFreeAndWithinItsInFlightBound) {
  expect_all_shapes_legal(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Legality, EverySchedule, ::testing::ValuesIn(kBuiltSchedules),
                         [](const auto& info) {
                           std::string name = std::string("_") + name_of(info.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata
