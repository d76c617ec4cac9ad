#include "strata/base/flat_range.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace strata {
namespace {

TEST(FlatRange, CutsCoverEachElementOnceAtWholeBlocks) {
  for (const std::int64_t numel : {0, 16, 1024, 1040, 5000, 100000}) {
    for (const int parts : {1, 2, 3, 8}) {
      std::int64_t end = 0, largest = 0;
      for (const FlatRange range : cut({0, numel}, parts)) {
        EXPECT_EQ(range.begin, end);
        EXPECT_TRUE(range.begin % kFlatBlock == 0 || range.begin == numel);
        end = range.end;
        largest = std::max(largest, range.size());
      }
      EXPECT_EQ(end, numel);
      EXPECT_GE(largest_cut(numel, parts), largest);  // the last block may not be full
      EXPECT_LT(largest_cut(numel, parts), largest + kFlatBlock);
    }
  }
}

TEST(FlatRange, AdjacentPartsOfEqualSizeAreEven) {
  using Parts = std::vector<FlatRange>;
  EXPECT_TRUE(are_even(Parts{{0, 4}, {4, 8}, {8, 12}}));
  EXPECT_TRUE(are_even(Parts{{0, 4}}));
  EXPECT_FALSE(are_even(Parts{{0, 4}, {4, 8}, {8, 11}}));
  EXPECT_FALSE(are_even(Parts{{0, 4}, {5, 9}}));
  EXPECT_FALSE(are_even(Parts{{4, 8}, {8, 12}}));
  EXPECT_FALSE(are_even(Parts{{4, 8}, {0, 4}}));
}

}  // namespace
}  // namespace strata
