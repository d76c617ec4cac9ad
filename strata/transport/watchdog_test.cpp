#include "strata/transport/watchdog.h"

#include <gtest/gtest.h>

#include <cstring>

namespace strata {
namespace {

std::string name(int rank) { return "rank " + std::to_string(rank); }

RankProgress progress(const char* what, int position, int micro_batch, int waits_for,
                      double unchanged) {
  RankProgress it;
  std::strncpy(it.what, what, sizeof it.what - 1);
  it.position = position;
  it.micro_batch = micro_batch;
  it.waits_for = waits_for;
  it.unchanged_seconds = unchanged;
  return it;
}

TEST(Stall, NamesTheRankAtTheEndOfTheChain) {
  const std::vector<RankProgress> ranks{progress("activation", 17, 4, 1, 20),
                                        progress("data loading", -1, -1, -1, 12.2),
                                        progress("gradient", 9, 0, 0, 15)};
  EXPECT_EQ(
      diagnose(ranks, 0, 10, name)->text,
      "rank 0 waits at position 17 for the activation of micro-batch 4 from rank 1, last seen "
      "in data loading for 12 s");
  const auto stall = diagnose(ranks, 2, 10, name);
  EXPECT_EQ(stall->blocking_rank, 1);
  EXPECT_DOUBLE_EQ(stall->seconds, 12.2);
  EXPECT_EQ(stall->text,
            "rank 2 waits at position 9 for the gradient of micro-batch 0 from rank 0, which waits "
            "at position 17 for the activation of micro-batch 4 from rank 1, last seen in data "
            "loading for 12 s");
}

TEST(Stall, IsNoneWhileTheBlockingRankMakesProgress) {
  const std::vector<RankProgress> ranks{progress("activation", 17, 4, 1, 20),
                                        progress("forward", 3, 4, -1, 2)};
  EXPECT_FALSE(diagnose(ranks, 0, 10, name));
  EXPECT_FALSE(diagnose(ranks, 1, 1, name));  // does not wait
}

TEST(Stall, IsADeadlockWhenAllWait) {
  const std::vector<RankProgress> ranks{progress("gradient", 1, 0, 1, 11),
                                        progress("gradient", 2, 0, 0, 11)};
  EXPECT_NE(diagnose(ranks, 0, 10, name)->text.find("a deadlock"), std::string::npos);
}

TEST(Stall, SeesEndedAndSilentRanks) {
  std::vector<RankProgress> ranks{progress("", -1, -1, 1, 11), progress("forward", 2, 0, 0, 30)};
  ranks[1].silent_seconds = 30;
  EXPECT_EQ(diagnose(ranks, 0, 10, name)->text,
            "rank 0 waits for rank 1, not heard from for 30 s, last seen in forward of micro-batch "
            "0");
  ranks[1].waits_for = -1;
  ranks[1].ended = true;
  EXPECT_EQ(diagnose(ranks, 0, 10, name)->text, "rank 0 waits for rank 1, which has ended");
}

}  // namespace
}  // namespace strata
