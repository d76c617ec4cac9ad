#include "strata/comm/stall.h"

#include <gtest/gtest.h>

#include <cstring>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"

namespace strata {
namespace {

std::string name(int rank) { return "rank " + std::to_string(rank); }

Activity activity(const char* what, int position, int micro_batch, int waits_for,
                  double unchanged) {
  Activity it;
  std::strncpy(it.what, what, sizeof it.what - 1);
  it.position = position;
  it.micro_batch = micro_batch;
  it.waits_for = waits_for;
  it.unchanged_seconds = unchanged;
  return it;
}

TEST(Stall, NamesTheCulpritAtTheEndOfTheChain) {
  const std::vector<Activity> ranks{activity("activation", 17, 4, 1, 20),
                                    activity("data loading", -1, -1, -1, 12.2),
                                    activity("gradient", 9, 0, 0, 15)};
  EXPECT_EQ(
      diagnose(ranks, 0, 10, name)->text,
      "rank 0 waits at position 17 for the activation of micro-batch 4 from rank 1, last seen "
      "in data loading for 12 s");
  const auto stall = diagnose(ranks, 2, 10, name);
  EXPECT_EQ(stall->culprit, 1);
  EXPECT_DOUBLE_EQ(stall->seconds, 12.2);
  EXPECT_EQ(stall->text,
            "rank 2 waits at position 9 for the gradient of micro-batch 0 from rank 0, which waits "
            "at position 17 for the activation of micro-batch 4 from rank 1, last seen in data "
            "loading for 12 s");
}

TEST(Stall, IsNoneWhileTheCulpritMakesProgress) {
  const std::vector<Activity> ranks{activity("activation", 17, 4, 1, 20),
                                    activity("forward", 3, 4, -1, 2)};
  EXPECT_FALSE(diagnose(ranks, 0, 10, name));
  EXPECT_FALSE(diagnose(ranks, 1, 1, name));  // does not wait
}

TEST(Stall, IsADeadlockWhenAllWait) {
  const std::vector<Activity> ranks{activity("gradient", 1, 0, 1, 11),
                                    activity("gradient", 2, 0, 0, 11)};
  EXPECT_NE(diagnose(ranks, 0, 10, name)->text.find("a deadlock"), std::string::npos);
}

TEST(Stall, SeesEndedAndSilentRanks) {
  std::vector<Activity> ranks{activity("", -1, -1, 1, 11), activity("forward", 2, 0, 0, 30)};
  ranks[1].unheard_seconds = 30;
  EXPECT_EQ(diagnose(ranks, 0, 10, name)->text,
            "rank 0 waits for rank 1, not heard from for 30 s, last seen in forward of micro-batch "
            "0");
  ranks[1].waits_for = -1;
  ranks[1].ended = true;
  EXPECT_EQ(diagnose(ranks, 0, 10, name)->text, "rank 0 waits for rank 1, which has ended");
}

TEST(Stall, EndsARunOfThreads) {
  try {
    run_ranks(
        {.ranks = 3, .stall_seconds = 0.5, .stall_fatal_seconds = 1, .rendezvous = Rendezvous{}},
        [](Group& group, MemoryAccount&) {
          group.doing("activation", 17, 4);
          if (group.rank() == 1) group.receive(2, {});  // never sent
          if (group.rank() == 0) group.barrier();
          // rank 2 has nothing to do
        });
    FAIL() << "the stall was not noticed";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.text().operation, "comm.wait");
    EXPECT_NE(error.text().what.find("rank 2, which has ended"), std::string::npos)
        << error.text().what;
  }
}

}  // namespace
}  // namespace strata
