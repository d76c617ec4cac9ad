// Every schedule for every small shape, lowered onto a model with a skip and a tie, is legal.

#include <gtest/gtest.h>

#include "strata/schedule/example_models_test.h"
#include "strata/schedule/validator.h"

namespace strata::schedule {
namespace {

constexpr int kMaxRanks = 8;
constexpr int kMaxMicroBatches = 17;
constexpr int kMaxVirtualStages = 4;
constexpr int kLayersAStage = 2;

// With `again`, every third layer runs again, so that stages are split in all ways.
std::vector<char> recomputed_layers(int num_layers, bool again) {
  if (!again) return {};
  std::vector<char> recompute(num_layers);
  for (int l = 0; l < num_layers; l += 3) recompute[l] = 1;
  return recompute;
}

void expect_legal(const std::string& name, Shape shape, bool again) {
  const bool backward = name != "forward";
  const int stages = shape.ranks * shape.virtual_stages;
  const Dataflow dataflow = chain_with_skip_and_tie(stages * kLayersAStage);
  const Partition partition = equal_stages(stages, kLayersAStage);
  ValidateOptions options{.backward = backward, .in_flight_bound = {}};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    options.in_flight_bound.push_back(in_flight_bound(name, shape, rank));
  }
  const LowerOptions lowering{.recompute = recomputed_layers(dataflow.num_layers, again),
                              .update = backward};
  const Schedule schedule = lower(build(name, shape), dataflow, partition, lowering);
  // The bounds are met, not only kept, except where few micro-batches cut a group short.
  const Validation validation = validate(schedule, dataflow, partition, options);
  if (shape.micro_batches % shape.ranks == 0) {
    EXPECT_EQ(validation.peak_in_flight, options.in_flight_bound)
        << name << " p" << shape.ranks << " m" << shape.micro_batches << " v"
        << shape.virtual_stages;
  }
}

void expect_all_shapes_legal(const std::string& name) {
  const int max_virtual_stages = name == "1f1b" ? 1 : kMaxVirtualStages;
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      for (int v = 1; v <= max_virtual_stages; ++v) {
        for (const bool again : {false, true}) {
          ASSERT_NO_THROW(expect_legal(name, {p, m, v}, again))
              << name << " p" << p << " m" << m << " v" << v << (again ? " recompute" : "");
        }
      }
    }
  }
}

class EverySchedule : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySchedule, IsLegalDeadlockFreeAndWithinItsInFlightBound) {
  expect_all_shapes_legal(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Legality, EverySchedule, ::testing::ValuesIn(schedule_names()),
                         [](const auto& info) { return "_" + info.param; });

}  // namespace
}  // namespace strata::schedule
