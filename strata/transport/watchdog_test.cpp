#include "strata/transport/watchdog.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/monitor.h"

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

TEST(Stall, NamesRankAtEndOfChain) {
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

TEST(Stall, IsNoneWhileBlockingRankMakesProgress) {
  const std::vector<RankProgress> ranks{progress("activation", 17, 4, 1, 20),
                                        progress("forward", 3, 4, -1, 2)};
  EXPECT_FALSE(diagnose(ranks, 0, 10, name));
  EXPECT_FALSE(diagnose(ranks, 1, 1, name));  // does not wait
}

TEST(Stall, IsDeadlockIfAllWait) {
  const std::vector<RankProgress> ranks{progress("gradient", 1, 0, 1, 11),
                                        progress("gradient", 2, 0, 0, 11)};
  EXPECT_NE(diagnose(ranks, 0, 10, name)->text.find("a deadlock"), std::string::npos);
}

TEST(Stall, DetectsEndedAndSilentRanks) {
  std::vector<RankProgress> ranks{progress("", -1, -1, 1, 11), progress("forward", 2, 0, 0, 30)};
  ranks[1].silent_seconds = 30;
  EXPECT_EQ(diagnose(ranks, 0, 10, name)->text,
            "rank 0 waits for rank 1, not heard from for 30 s, last seen in forward of micro-batch "
            "0");
  ranks[1].waits_for = -1;
  ranks[1].ended = true;
  EXPECT_EQ(diagnose(ranks, 0, 10, name)->text, "rank 0 waits for rank 1, which has ended");
}

// Rank 3's device hangs, those of ranks 0 and 1 wait for it, and rank 2 for a message of rank 1.
struct HungDevice : testing::Test {
  HungDevice() {
    ranks = {at_work("reduction", 20, 4, 60.2), at_work("reduction", 20, 4, 62.4),
             progress("activation", 3, 5, 1, 60.1), at_work("backward", 17, 1, 61.3)};
    ranks[0].device.collective = ranks[1].device.collective = true;
  }
  // The rank enqueued later work and waits for its device or for others.
  static RankProgress at_work(const char* what, int position, int micro_batch, double seconds) {
    RankProgress it = progress("gradient", 25, 6, 2, 59);
    std::strncpy(it.device.what, what, sizeof it.device.what - 1);
    it.device.position = position;
    it.device.micro_batch = micro_batch;
    it.device.seconds = seconds;
    return it;
  }
  std::vector<RankProgress> ranks;
};

TEST_F(HungDevice, IsReportedForItsRank) {
  const auto stall = diagnose(ranks, 3, 10, name);
  EXPECT_EQ(stall->text,
            "rank 3 waits for its device for 61 s, at position 17 in backward of micro-batch 1");
  EXPECT_EQ(stall->blocking_rank, 3);
  EXPECT_TRUE(stall->on_device);
  EXPECT_DOUBLE_EQ(stall->seconds, 61.3);
  EXPECT_FALSE(diagnose(ranks, 3, 63, name));
}

TEST_F(HungDevice, IsNamedByRanksWhoseDevicesWaitForIt) {
  const std::string named =
      "; rank 3 waits for its device for 61 s, at position 17 in backward of micro-batch 1";
  EXPECT_EQ(diagnose(ranks, 0, 10, name)->text,
            "rank 0 waits for its device, which waits in a collective, for 60 s, at position 20 in "
            "reduction of micro-batch 4" +
                named);
  EXPECT_EQ(
      diagnose(ranks, 2, 10, name)->text,
      "rank 2 waits at position 3 for the activation of micro-batch 5 from rank 1, which waits for "
      "its device, which waits in a collective, for 62 s, at position 20 in reduction of "
      "micro-batch 4" +
          named);
  EXPECT_EQ(diagnose(ranks, 2, 10, name)->blocking_rank, 3);
}

// Devices wait for a rank that has not enqueued the work that they wait for.
TEST_F(HungDevice, IsNoneIfRankIsBusy) {
  ranks[3] = progress("data loading", -1, -1, -1, 61);
  const auto stall = diagnose(ranks, 0, 10, name);
  EXPECT_EQ(stall->blocking_rank, 3);
  EXPECT_FALSE(stall->on_device);
  EXPECT_NE(stall->text.find("; rank 3 last seen in data loading for 61 s"), std::string::npos)
      << stall->text;
  EXPECT_FALSE(diagnose(ranks, 3, 10, name));  // unknown whether it takes too long
}

// A process may hang together with its device and report nothing more.
TEST(ProgressTable, KeepsCountingForSilentDevice) {
  ProgressTable table(1);
  RankProgress reported = progress("backward", 3, 0, -1, 0);
  reported.device.seconds = 7;
  table.update(0, {&reported, 1});
  RankProgress now = table.of(0);
  while (now.silent_seconds == 0) now = table.of(0);
  EXPECT_DOUBLE_EQ(now.device.seconds, 7 + now.silent_seconds);
}

// The first of two ranks waits for the second.
struct Watched : testing::Test {
  struct Seen {
    int looks = 0;
    std::vector<std::string> warnings;
  };
  Watchdog::Options options(const std::function<bool()>& failed = [] { return false; }) {
    return {.first_rank = 0,
            .local_ranks = 1,
            .stall_seconds = 0.02,
            .fatal_seconds = 0,
            .name_of = name,
            .tell_others = {},
            .look_at_device = {},
            .warn =
                [this](const std::string& line) {
                  seen.change([&](Seen& it) { it.warnings.push_back(line); });
                },
            .fail = [](const Error& error) { FAIL() << error.what(); },
            .failed =
                [this, failed] {
                  seen.change([](Seen& it) { ++it.looks; });
                  return failed();
                }};
  }
  void stand_still_for(double seconds) {
    const std::vector<RankProgress> ranks{progress("gradient", 2, 0, 1, seconds),
                                          progress("forward", 1, 0, -1, seconds)};
    table.update(0, ranks);
  }
  void await_looks(int more) {
    const int looks = seen.look([](const Seen& it) { return it.looks; });
    seen.wait([&](const Seen& it) { return it.looks >= looks + more; });
  }
  std::size_t warnings() const {
    return seen.look([](const Seen& it) { return it.warnings.size(); });
  }

  Monitor<Seen> seen;
  ProgressTable table{2};
};

TEST_F(Watched, ReportsEachStallOnce) {
  stand_still_for(500);
  const Watchdog watchdog(table, options());
  await_looks(3);
  EXPECT_EQ(warnings(), 1u);
  stand_still_for(200);  // it made progress in between
  await_looks(3);
  EXPECT_EQ(warnings(), 2u);
}

// Ranks 0 and 1, of this process, wait for rank 2. The process is stopped while it reports its
// ranks to others, or checks one.
TEST_F(Watched, StoppedProcessIsNoStall) {
  for (const bool tells : {true, false}) {
    ProgressTable all(3);
    const std::vector<RankProgress> ranks{progress("gradient", 2, 0, 2, 0),
                                          progress("gradient", 2, 0, 2, 0),
                                          progress("forward", 1, 0, -1, 0)};
    bool stopped = false;
    const auto stop = [&] {
      if (std::exchange(stopped, true)) return;
      all.update(0, ranks);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    };
    Watchdog::Options watching = options();
    watching.local_ranks = 2;
    watching.stall_seconds = 0.4;
    watching.stopped_seconds = 0.16;
    if (tells) {
      watching.tell_others = [&](std::span<const RankProgress>) { stop(); };
    } else {
      watching.look_at_device = [&](int, RankProgress&) { stop(); };
    }
    const Watchdog watchdog(all, watching);
    await_looks(3);
    EXPECT_EQ(warnings(), 0u) << tells;
  }
}

TEST_F(Watched, StopsCheckingAfterFailure) {
  stand_still_for(500);
  const Watchdog watchdog(table, options([] { return true; }));
  await_looks(3);
  EXPECT_EQ(warnings(), 0u);
}

}  // namespace
}  // namespace strata
