// Every schedule for every small shape, lowered onto a model with a skip and a tie, is legal.

#include <gtest/gtest.h>

#include "strata/schedule/example_models_test.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

constexpr int kMaxRanks = 8;
constexpr int kMaxMicroBatches = 17;
constexpr int kMaxVirtualStages = 4;
constexpr int kLayersAStage = 2;

// Every third layer, so that stages are split in all ways.
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
  // The bounds are met, not only kept, except where few micro-batches cut a group short.
  const Validation validation = validate(schedule, dataflow, partition, options);
  if (shape.micro_batches % shape.ranks == 0) {
    EXPECT_EQ(validation.peak_in_flight, options.in_flight_bound)
        << name_of(kind) << " p" << shape.ranks << " m" << shape.micro_batches << " v"
        << shape.virtual_stages;
  }
}

void expect_all_shapes_legal(ScheduleKind kind) {
  const int max_virtual_stages = kind == ScheduleKind::k1f1b ? 1 : kMaxVirtualStages;
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      for (int v = 1; v <= max_virtual_stages; ++v) {
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

INSTANTIATE_TEST_SUITE_P(Legality, EverySchedule, ::testing::ValuesIn(kScheduleKinds),
                         [](const auto& info) { return std::string("_") + name_of(info.param); });

}  // namespace
}  // namespace strata
