#include "strata/train/step_sums.h"

#include <gtest/gtest.h>

#include "strata/comm/ranks.h"

namespace strata {
namespace {

TEST(StepSums, FillEveryTargetWithSumsOfAllRanks) {
  run_thread_ranks({.ranks = 3}, [](Group& group, MemoryAccount&) {
    const int rank = group.rank();
    double sum = 0, largest = 0;
    std::int64_t count = 0;
    bool any = false, none = true;
    std::vector<double> seconds = {9, 9, 9, 9};
    std::vector<std::int64_t> bytes;
    StepSums sums(group);
    sums.of_each_rank(rank + 0.5, &seconds);
    sums.sum(0.25 * (rank + 1), &sum);
    sums.of_each_rank(std::int64_t{1} << (40 + rank), &bytes);
    sums.largest(rank == 1 ? 7.0 : rank, &largest);
    sums.sum(std::int64_t{10} + rank, &count);
    sums.any(rank == 2, &any);
    sums.any(false, &none);
    sums.share();
    EXPECT_EQ(seconds, (std::vector<double>{0.5, 1.5, 2.5}));
    EXPECT_EQ(sum, 1.5);
    EXPECT_EQ(bytes, (std::vector<std::int64_t>{1ll << 40, 1ll << 41, 1ll << 42}));
    EXPECT_EQ(largest, 7);
    EXPECT_EQ(count, 33);
    EXPECT_TRUE(any);
    EXPECT_FALSE(none);
  });
}

TEST(StepSums, AreEmptyAfterSharing) {
  run_thread_ranks({.ranks = 2}, [](Group& group, MemoryAccount&) {
    StepSums sums(group);
    double first = 0, second = 0;
    sums.sum(1.0, &first);
    sums.share();
    first = -1;
    sums.sum(2.0, &second);
    sums.share();
    EXPECT_EQ(first, -1);
    EXPECT_EQ(second, 4);
  });
}

}  // namespace
}  // namespace strata
