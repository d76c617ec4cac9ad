#include "strata/optim/zero_one_intervals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace strata {
namespace {

OptimizerOptions options(std::int64_t freeze, std::int64_t refreshes, std::int64_t steps,
                         std::int64_t most) {
  return {.kind = OptimizerKind::kZeroOneAdam,
          .freeze_step = freeze,
          .refresh_doubling = refreshes,
          .local_doubling = steps,
          .local_most = most};
}

// The paper's k_{j+1} - k_j = 2^floor(j / kappa), from k_0 = 1 on.
TEST(ZeroOneIntervals, RefreshesFollowPaper) {
  for (const std::int64_t kappa : {1, 2, 3, 16}) {
    const OptimizerOptions of = options(500, kappa, 10, 4);
    std::set<std::int64_t> expected;
    for (std::int64_t k = 1, j = 0; k <= 500; ++j) {
      expected.insert(k);
      k += std::int64_t{1} << (j / kappa);
    }
    std::int64_t count = 0;
    for (std::int64_t update = 1; update <= 600; ++update) {
      count += static_cast<std::int64_t>(expected.count(update));
      EXPECT_EQ(refreshes_variances(of, update), expected.contains(update)) << update;
      EXPECT_EQ(count_refreshes(of, update), count) << update;
    }
  }
  EXPECT_EQ(count_refreshes(options(5, 2, 1, 1), 0), 0);
  EXPECT_EQ(count_refreshes(options(std::int64_t{1} << 39, 1, 1, 1), std::int64_t{1} << 39), 40);
}

TEST(ZeroOneIntervals, SynchronisationsDoubleUpToTheMost) {
  const OptimizerOptions of = options(10, 2, 8, 4);
  for (std::int64_t update = 1; update <= 18; ++update) EXPECT_TRUE(synchronises(of, update));
  for (std::int64_t update = 19; update <= 26; ++update)
    EXPECT_EQ(synchronises(of, update), update % 2 == 0) << update;
  for (std::int64_t update = 27; update <= 90; ++update)
    EXPECT_EQ(synchronises(of, update), (update - 26) % 4 == 0) << update;
  EXPECT_EQ(synchronisations_per_step(of, 10), 1);
  EXPECT_EQ(synchronisations_per_step(of, 18), 1);
  EXPECT_EQ(synchronisations_per_step(of, 19), 0.5);
  EXPECT_EQ(synchronisations_per_step(of, 1000), 0.25);
}

// An interval that does not fit before the next doubling ends there.
TEST(ZeroOneIntervals, DoublingEndsARound) {
  const OptimizerOptions of = options(4, 2, 3, 3);
  std::set<std::int64_t> apart;
  for (std::int64_t update = 1; update <= 16; ++update)
    if (!synchronises(of, update)) apart.insert(update);
  EXPECT_EQ(apart, (std::set<std::int64_t>{8, 11, 12, 14, 15}));
  EXPECT_DOUBLE_EQ(synchronisations_per_step(options(4, 2, 3, 2), 100), 2 / 3.0);
}

}  // namespace
}  // namespace strata
