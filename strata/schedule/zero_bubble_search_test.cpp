// Compares orders with the published shares of time in which a rank waits (Qi et al. 2023, "Zero
// Bubble Pipeline Parallelism", Table 5, from the times in Table 9).
#include "strata/schedule/zero_bubble_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "strata/base/errors.h"
#include "strata/layout/example_models_test.h"
#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

constexpr double kSequence = 1024;  // tokens

struct Cell {
  double width, heads;
  int ranks, micro_batches;
  double forward, input, weight, transfer;  // milliseconds
  double k1f1b, zb_h1, zb_h2, zb_1p, zb_2p;
};

constexpr Cell kTable[] = {
    {2304, 24, 8, 24, 18.522, 18.086, 9.337, .601, .2431, .1585, .1083, .1585, .0433},
    {2304, 24, 8, 64, 18.546, 18.097, 9.321, .762, .1240, .0674, .0444, .0674, .0026},
    {4096, 32, 8, 24, 29.718, 29.444, 19.927, .527, .2347, .1323, .0698, .1323, .0029},
    {5120, 40, 16, 48, 11.347, 11.248, 8.132, .377, .2552, .1397, .0672, .1397, .0066},
    {6144, 48, 32, 96, 10.419, 10.207, 7.715, .408, .2646, .1421, .0641, .1421, .0038},
    {6144, 48, 32, 256, 10.402, 10.248, 7.698, .460, .1352, .0594, .0257, .0594, .0018},
};

// `most`: in activations of a micro-batch.
std::vector<StageCosts> stages_of(const Cell& cell, double most) {
  const double kept = 32 * cell.width / (34 * cell.width + 5 * cell.heads * kSequence);
  return std::vector<StageCosts>(cell.ranks, {.forward = cell.forward,
                                              .input = cell.input,
                                              .weight = cell.weight,
                                              .saved = 1,
                                              .kept = kept,
                                              .most = most});
}

TEST(ZeroBubbleSearch, ReproducesThePublishedBubbleRates) {
  constexpr double kFourDecimals = 0.00005;
  for (const Cell& cell : kTable) {
    SCOPED_TRACE(std::to_string(cell.ranks) + " ranks, " + std::to_string(cell.micro_batches));
    const PipelineShape shape{.ranks = cell.ranks, .micro_batches = cell.micro_batches};
    const double work = cell.micro_batches * (cell.forward + cell.input + cell.weight);
    const auto rate = [&](double seconds) { return (seconds - work) / seconds; };
    const auto fixed = [&](const Schedule& order) {
      return rate(seconds_of(order, stages_of(cell, 1e9), cell.transfer));
    };
    const auto found = [&](double activations) {
      return rate(search_zero_bubble(stages_of(cell, activations * cell.ranks), cell.micro_batches,
                                     cell.transfer)
                      .seconds);
    };
    EXPECT_NEAR(fixed(one_f_one_b(shape)), cell.k1f1b, kFourDecimals);
    EXPECT_NEAR(fixed(zb_h1(shape)), cell.zb_h1, kFourDecimals);
    EXPECT_NEAR(fixed(zb_h2(shape)), cell.zb_h2, kFourDecimals);
    EXPECT_NEAR(found(1), cell.zb_1p, kFourDecimals);
    EXPECT_NEAR(found(2), cell.zb_2p, kFourDecimals);
  }
}

TEST(ZeroBubbleSearch, EveryOrderIsLegalAndWithinItsMemory) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int count = 1; count <= 13; ++count) {
      for (const double most : {1.0, 1.5, 2.0}) {
        std::vector<StageCosts> stages;
        for (int r = 0; r < ranks; ++r)
          stages.push_back({.forward = 1 + 0.1 * r,
                            .input = 1.3 - 0.1 * r,
                            .weight = 0.4 + 0.1 * (r % 3),
                            .saved = 1,
                            .kept = 0.8,
                            .most = most * ranks + 1});
        const SearchedSchedule found = search_zero_bubble(stages, count, 0.05);
        SCOPED_TRACE("p" + std::to_string(ranks) + " m" + std::to_string(count));
        const Dataflow dataflow = chain(2 * ranks);
        const Partition partition = equal_stages(ranks, 2);
        validate(lower(found.schedule, dataflow, partition, {}), dataflow, partition, {});
        EXPECT_NEAR(seconds_of(found.schedule, stages, 0.05), found.seconds, 1e-9);
        for (int r = 0; r < ranks; ++r)
          EXPECT_LE(most_held(found.schedule.programs[r], stages[r]), stages[r].most + 1e-9);
      }
    }
  }
}

TEST(ZeroBubbleSearch, NoOrderIsSlowerThanTheFixedOnesWithItsMemory) {
  for (const int ranks : {2, 4, 8}) {
    const std::vector<StageCosts> stages(ranks, {.forward = 1,
                                                 .input = 1,
                                                 .weight = 1,
                                                 .saved = 1,
                                                 .kept = 0.9,
                                                 .most = static_cast<double>(2 * ranks)});
    const double found = search_zero_bubble(stages, 3 * ranks, 0).seconds;
    const PipelineShape shape{.ranks = ranks, .micro_batches = 3 * ranks};
    EXPECT_LE(found, seconds_of(zb_h2(shape), stages, 0) + 1e-9);
    EXPECT_LE(found, seconds_of(zb_h1(shape), stages, 0) + 1e-9);
  }
}

}  // namespace
}  // namespace strata
