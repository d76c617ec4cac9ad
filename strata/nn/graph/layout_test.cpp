#include "strata/nn/graph/layout.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(LayerLayout, PutsDecayedWeightsFirstAndBorrowedOnesLast) {
  const LayerLayout layout = make_layout({{.name = "bias", .shape = {5}},
                                          {.name = "tied", .shape = {4, 8}, .decay = true},
                                          {.name = "matrix", .shape = {3, 7}, .decay = true}},
                                         {false, true, false});
  EXPECT_EQ(layout.placements[2].offset, 0);
  EXPECT_EQ(layout.placements[0].offset, 32);  // 21 elements, aligned to 16
  EXPECT_EQ(layout.placements[1].offset, 48);
  EXPECT_TRUE(layout.placements[1].borrowed);
  EXPECT_EQ(layout.decay_numel, 32);
  EXPECT_EQ(layout.own_numel, 48);
  EXPECT_EQ(layout.total_numel, 80);
}

TEST(LayerLayout, PutsRunningStatisticsAfterTrainedWeights) {
  const LayerLayout layout =
      make_layout({{.name = "mean", .shape = {5}, .statistic = Statistic::kMean},
                   {.name = "tied", .shape = {4}},
                   {.name = "gain", .shape = {5}},
                   {.name = "matrix", .shape = {3, 7}, .decay = true}},
                  {false, true, false, false});
  EXPECT_EQ(layout.decay_numel, 32);
  EXPECT_EQ(layout.placements[2].offset, 32);
  EXPECT_EQ(layout.trained_numel, 48);
  EXPECT_EQ(layout.placements[0].offset, 48);
  EXPECT_EQ(layout.own_numel, 64);
  EXPECT_EQ(layout.total_numel, 80);
}

TEST(LayerLayout, AlignsWeightsTo64BytesInEveryType) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const LayerLayout layout = make_layout({{.name = "a", .shape = {3, 5}, .decay = true},
                                            {.name = "b", .shape = {17}},
                                            {.name = "c", .shape = {1}}},
                                           {false, false, false}, 1, dtype);
    for (const WeightPlacement& place : layout.placements)
      EXPECT_EQ(place.offset * static_cast<std::int64_t>(c10::elementSize(dtype)) % 64, 0);
    EXPECT_EQ(layout.own_numel, dtype == at::kFloat ? 16 + 32 + 16 : 32 + 32 + 32);
  }
}

WeightSpec weight(std::vector<std::int64_t> shape, WeightSplit split) {
  return {.name = "w", .shape = std::move(shape), .split = std::move(split)};
}

// Copies every rank's runs into a whole and counts how often each element occurs.
void expect_covers(const WeightSpec& spec, int ranks) {
  std::int64_t numel = 1;
  for (const std::int64_t size : spec.shape) numel *= size;
  std::int64_t local_numel = 1;
  for (const std::int64_t size : slice_shape(spec, ranks)) local_numel *= size;
  std::vector<int> met(numel, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t end = 0;
    for (const strata::Run& run : slice_runs(spec, rank, ranks)) {
      EXPECT_GE(run.local, end);
      end = run.local + run.numel;
      EXPECT_LE(end, local_numel);
      for (std::int64_t i = 0; i < run.numel; ++i) ++met[run.global + i];
    }
  }
  for (const int times : met) EXPECT_EQ(times, 1);
}

TEST(WeightSlice, EveryElementBelongsToOneRank) {
  for (const int ranks : {1, 2, 3, 4}) {
    expect_covers(weight({12, 5}, {.axis = 0, .sections = {4, 4, 4}}), ranks);
    expect_covers(weight({16, 3}, {.axis = 0, .sections = {8, 4, 4}, .unit = 2}), ranks);
    expect_covers(weight({5, 12}, {.axis = 1}), ranks);
    expect_covers(weight({17, 4}, {.axis = 0}), ranks);
    expect_covers(weight({7}, {.axis = 0}), ranks);
  }
}

TEST(WeightSlice, CutsEachPackedSection) {
  const WeightSpec spec = weight({12, 2}, {.axis = 0, .sections = {4, 4, 4}});
  EXPECT_EQ(slice_shape(spec, 2), (std::vector<std::int64_t>{6, 2}));
  EXPECT_EQ(slice_runs(spec, 1, 2), (std::vector<strata::Run>{{0, 4, 4}, {4, 12, 4}, {8, 20, 4}}));
}

TEST(WeightSlice, PadsIndivisibleSizesAtTheEnd) {
  const WeightSpec spec = weight({5, 2}, {.axis = 0});
  EXPECT_EQ(slice_shape(spec, 2), (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(slice_runs(spec, 1, 2), (std::vector<strata::Run>{{0, 6, 4}}));
}

TEST(WeightSlice, ClipsToARange) {
  const std::vector<strata::Run> runs = {{0, 10, 4}, {4, 20, 4}};
  EXPECT_EQ(clip_runs(runs, 2, 6), (std::vector<strata::Run>{{2, 12, 2}, {4, 20, 2}}));
  EXPECT_TRUE(clip_runs(runs, 8, 9).empty());
}

}  // namespace
}  // namespace strata
