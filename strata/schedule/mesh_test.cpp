#include "strata/schedule/mesh.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Mesh, EveryRankHasOnePlace) {
  const Mesh mesh{.pp = 4, .dp = 2, .tp = 4};
  EXPECT_EQ(mesh.size(), 32);
  for (int rank = 0; rank < mesh.size(); ++rank) EXPECT_EQ(mesh.rank(mesh.place(rank)), rank);
}

TEST(Mesh, LinesRunAlongOneAxis) {
  const Mesh mesh{.pp = 2, .dp = 3, .tp = 2};
  EXPECT_EQ(mesh.tp_line(9), (std::vector<int>{8, 9}));
  EXPECT_EQ(mesh.dp_line(9), (std::vector<int>{7, 9, 11}));
  EXPECT_EQ(mesh.pp_line(9), (std::vector<int>{3, 9}));
  EXPECT_EQ(mesh.stage_ranks(9), (std::vector<int>{6, 7, 8, 9, 10, 11}));
}

TEST(Mesh, NamesTheAxesThatAreThere) {
  const Mesh mesh{.pp = 4, .dp = 2, .tp = 4};
  EXPECT_EQ(mesh.name(14), "rank 14 (pp 1/4, tp 2/4, dp 1/2)");
  EXPECT_EQ((Mesh{.pp = 2}).name(1), "rank 1 (pp 1/2)");
  EXPECT_EQ(Mesh{}.name(0), "rank 0");
}

}  // namespace
}  // namespace strata
