#include "strata/nn/layout.h"

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

TEST(LayerLayout, AlignsWeightsTo64BytesOfTheirOwnType) {
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

}  // namespace
}  // namespace strata
