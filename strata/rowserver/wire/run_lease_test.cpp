// Which run has the rows of a server: the order of runs, runs that live, die and come late.
#include "strata/rowserver/wire/run_lease.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/wire/refusal_test.h"
#include "strata/rowserver/wire/servers_in_process_test.h"

namespace strata {
namespace {

using std::chrono::milliseconds;

constexpr LeaseTimes kNever{.returning = std::chrono::hours(1), .silence = std::chrono::hours(1)};

ProcessIdentity ended_process() {
  ProcessIdentity identity = this_process();
  --identity.started;  // an earlier process of the same number
  return identity;
}

TEST(RunLease, LastsWhileRanksAreConnectedOrMayReconnect) {
  RunLease fresh(2, kNever, false);
  EXPECT_FALSE(fresh.is_held());
  RunLease lease(2, kNever, true);
  EXPECT_TRUE(lease.is_held()) << "after a restart";
  lease.begin(this_process());
  EXPECT_FALSE(lease.is_held());
  lease.join(0, this_process());
  lease.join(1, this_process());
  lease.leave(0);
  EXPECT_TRUE(lease.is_held()) << "rank 1 is here";
  lease.lose(1);
  EXPECT_TRUE(lease.is_held()) << "rank 1 may come back";
  lease.join(1, this_process());
  lease.leave(1);
  EXPECT_FALSE(lease.is_held()) << "all ranks have left";
}

TEST(RunLease, EndsAfterProcessEndTimeoutOrSilence) {
  RunLease dead(1, kNever, false);
  dead.join(0, ended_process());
  EXPECT_TRUE(dead.is_held()) << "a stream counts more than what is known of its process";
  dead.lose(0);
  EXPECT_FALSE(dead.is_held());
  const LeaseTimes now{.returning = milliseconds(0), .silence = milliseconds(0)};
  RunLease away(1, now, false);
  away.join(0, this_process());
  std::this_thread::sleep_for(milliseconds(2));
  EXPECT_TRUE(away.is_held()) << "the server is busy with what this rank has sent";
  away.listen(0);
  std::this_thread::sleep_for(milliseconds(2));
  EXPECT_FALSE(away.is_held()) << "half-open";
  away.hear(0);
  EXPECT_TRUE(away.is_held());
  away.lose(0);
  std::this_thread::sleep_for(milliseconds(2));
  EXPECT_FALSE(away.is_held());
}

// The number of a run was once its trainer's clock. One whose clock was ahead left a number that no
// other reached.
TEST(RunOrder, DoesNotDependOnClocks) {
  ReferenceRows reference(1, 40);
  const ScratchFolder scratch;
  constexpr std::uint64_t kFarAhead = 1'900'000'000'000'000'000;  // nanoseconds: in the year 2030
  {
    PersistentShard old(options_for_test(scratch.path("rows") + "0"), make_map_state());
    old.begin_run(kFarAhead, 0);
  }
  Servers servers(scratch.path("rows"), 1, 1, 0, {.returning = milliseconds(0)});
  std::uint64_t before = kFarAhead;
  for (const RunName run : {RunName{9}, RunName{3}, RunName{5}}) {
    servers.follow_what_there_is();
    {
      const auto mine = servers.join(0, run, 0);
      EXPECT_EQ(train(*mine, 0, 0, 10, 3, reference, 0), -1);
    }
    if (run == 3) servers.end(0), servers.start(0);
    const std::uint64_t number = servers.shard(0).log().run().number;
    EXPECT_GT(number, before);
    EXPECT_EQ(name_of_run(number), run);
    before = number;
  }
}

TEST(RunOrder, RefusesLateRankOfAnEarlierRun) {
  ReferenceRows reference(1, 40);
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 1, 1, 0);
  const std::vector<std::uint64_t> none = servers.follow_what_there_is();
  {
    const auto mine = servers.join(0, 1, 0);
    EXPECT_EQ(train(*mine, 0, 0, 10, 3, reference, 0), -1);
  }
  // It was started in parallel with the first run, and neither follows the other.
  EXPECT_THROW(servers.join(0, 2, 0)->await(0), SystemError);
  EXPECT_EQ(servers.shard(0).live()->server->version(), 10);
  servers.follow_what_there_is();
  servers.join(0, 2, 0)->await(0);
  EXPECT_EQ(name_of_run(servers.shard(0).log().run().number), 2u);
}

TEST(RunLease, RefusesSecondRunAndNamesTheFirst) {
  ReferenceRows reference(2, 40);
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 2, 2, 0);
  servers.holder.host = "trainer-7", servers.holder.process = 4321, servers.holder.machine = "";
  servers.holder.since = 1'000'000'000;
  std::vector<std::unique_ptr<RowServers>> first;
  std::vector<std::int64_t> wrong(2, -2);
  const auto train_both = [&](std::int64_t from, std::int64_t to) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        wrong[at] = train(*first[at], rank, from, to, 3, reference, 10);
      });
    for (std::thread& thread : threads) thread.join();
  };
  for (int rank = 0; rank < 2; ++rank) first.push_back(servers.join(rank, 1, 0));
  train_both(0, 20);
  // The first run has nothing to say at the moment, and is heard all the same.
  const std::string text = refusal([&] { servers.follow_what_there_is(); });
  for (const char* words :
       {"[embed.lease]", "host trainer-7, process 4321, since 2001-09-09 01:46:40 UTC",
        "the rows since 20"})
    EXPECT_NE(text.find(words), std::string::npos) << text;
  const auto number = servers.shard(0).log().run().number;
  Hello hello;
  hello.fingerprint = servers.shard(0).fingerprint();
  hello.shards = 2, hello.ranks = 2, hello.run = 8, hello.follows = number;
  const std::string reported = servers.answer_to(0, hello);
  EXPECT_NE(reported.find("process 4321"), std::string::npos) << reported;
  EXPECT_EQ(servers.shard(0).log().run().number, number);
  train_both(20, 40);
  EXPECT_EQ(wrong, std::vector<std::int64_t>(2, -1));
  EXPECT_EQ(digest_of_all(servers, 2, 40), digest_of(reference.at(40).rows()));
}

TEST(RunLease, EndsAtOnceWithItsProcess) {
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 1, 1, 0, kNever);
  Hello hello;
  hello.fingerprint = servers.shard(0).fingerprint();
  hello.run = 1;
  hello.holder = ended_process();
  EXPECT_EQ(servers.answer_to(0, hello), "welcome");  // and breaks off
  EXPECT_EQ(name_of_run(servers.follow_what_there_is()[0]), 1u);
  servers.join(0, 2, 0)->await(0);
}

TEST(RunLease, ContinuesAfterServerRestart) {
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 1, 1, 0, kNever);
  const auto first = servers.join(0, 1, 0);
  first->await(0);
  servers.end(0), servers.start(0);
  EXPECT_NE(refusal([&] { servers.follow_what_there_is(); }).find("[embed.lease]"),
            std::string::npos);
  first->await(0);
}

// A greeting whose checksum fits may say anything. What is refused leaves nothing, and what is
// accepted keeps no other run from the rows.
TEST(RunOrder, SurvivesMutatedHellos) {
  ReferenceRows reference(1, 40);
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 1, 1, 0, {.returning = milliseconds(0)});
  {
    const auto mine = servers.join(0, 1, 0);
    EXPECT_EQ(train(*mine, 0, 0, 10, 3, reference, 10), -1);
  }
  std::mt19937_64 random(4);
  int refused = 0;
  for (int trial = 0; trial < 200; ++trial) {
    Hello hello;
    hello.fingerprint = servers.shard(0).fingerprint();
    hello.run = 1 + static_cast<RunName>(trial % 2), hello.begin = 10;
    hello.follows = servers.follow_what_there_is()[0];
    hello.durable = hello.begin;
    hello.holder = this_process();
    WireFrame frame = MessageBody::of(hello).frame(0);
    frame.resize(frame.size() - 8);
    frame[2 + random() % (frame.size() - 2)] = static_cast<std::byte>(random());
    seal_for_test(frame);
    const std::uint64_t before = servers.shard(0).log().run().number;
    if (servers.answer_to(0, frame) == "welcome") continue;
    ++refused;
    EXPECT_EQ(servers.shard(0).log().run().number, before);
    EXPECT_EQ(servers.sessions(0).counts().connected_ranks, 0);
  }
  EXPECT_GT(refused, 25);
  servers.follow_what_there_is();
  const auto mine = servers.join(0, 7, 10);
  EXPECT_EQ(train(*mine, 0, 10, 40, 3, reference, 0), -1);
  EXPECT_EQ(digest_of_all(servers, 1, 40), digest_of(reference.at(40).rows()));
}

// After a restart a rank says which version it still reads. One that is gone must not take the rows
// with it.
TEST(RunOrder, KeepsRowsIfARemovedVersionIsRead) {
  ReferenceRows reference(1, 40);
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 1, 1, 0, {.returning = milliseconds(0)});
  {
    const auto mine = servers.join(0, 1, 0);
    EXPECT_EQ(train(*mine, 0, 0, 40, 1, reference, 10), -1);
  }
  servers.end(0), servers.start(0);
  Hello hello;
  hello.fingerprint = servers.shard(0).fingerprint();
  hello.run = 1;
  hello.requests = 1, hello.oldest = 3;
  EXPECT_NE(servers.answer_to(0, hello).find("rows of a version are not there"), std::string::npos);
  servers.sessions(0).catch_up();
  EXPECT_EQ(digest_of_all(servers, 1, 40), digest_of(reference.at(40).rows()));
}

}  // namespace
}  // namespace strata
