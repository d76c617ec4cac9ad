#include "strata/schedule/layer_set.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(LayerSet, HasWhatWasAddedAndNotRemoved) {
  LayerSet set{4, 1};
  EXPECT_EQ(set.layers(), (std::vector<int>{1, 4}));
  EXPECT_TRUE(set.has(1) && set.has(4));
  EXPECT_FALSE(set.has(0) || set.has(5) || set.has(1000));
  set.remove(4);
  set.remove(7);
  EXPECT_EQ(set, LayerSet{1});
  EXPECT_EQ(set.size(), 1);
  set.remove(1);
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(LayerSet::all(3), (LayerSet{0, 1, 2}));
  EXPECT_EQ(LayerSet(std::vector<int>{2, 0}), (LayerSet{0, 2}));
}

}  // namespace
}  // namespace strata
