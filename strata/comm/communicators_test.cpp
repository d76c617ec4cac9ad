// Tests when communicators are created, in what order they end, and that no rank hangs in one, with
// a library that needs no GPU (fake_library_test.h).
#include "strata/comm/communicators.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/monitor.h"
#include "strata/comm/collectives.h"
#include "strata/comm/fake_library_test.h"
#include "strata/comm/mailboxes.h"
#include "strata/comm/rank_cases_test.h"

namespace strata {
namespace {

void expect_sum(Group& group) {
  at::Tensor x = upload(group, example_values(group.rank(), 100));
  all_reduce_sum(group, x);
  EXPECT_TRUE(at::equal(download(group, x), ordered_sum(group.size(), 100)));
}

// Called before one rank fails.
void expect_sum_everywhere(Group& world) {
  expect_sum(world);
  world.barrier();
}

CommunicatorRun healthy_run() {
  return {.failed = [] { return false; },
          .fail = [](const Error& error, LibraryFailure) { FAIL() << error.what(); }};
}

TEST(Communicators, AreCreatedOncePerSetOfRanksOnDemand) {
  FakeLibrary library;
  DelayedDevices all(1, 0, library);
  run_processes(4, all, [&](Group& world) {
    const int line = world.rank() % 2;
    Group first = world.subgroup({line, line + 2}, "dp"),
          second = world.subgroup({line, line + 2}, "shard");
    Group local = world.subgroup({world.rank() / 2 * 2, world.rank() / 2 * 2 + 1}, "tp");
    EXPECT_EQ(first.exchange_way(), ExchangeWay::kCommunicator);
    world.barrier();
    EXPECT_EQ(library.ids(), 0);
    world.barrier();
    expect_sum(local);
    world.barrier();
    EXPECT_EQ(library.ids(), 0);
    world.barrier();
    expect_sum(first);
    expect_sum(second);
    world.barrier();
    EXPECT_EQ(library.ids(), 2);
    world.barrier();
    expect_sum(world);
  });
  EXPECT_EQ(library.ids(), 3);
  EXPECT_EQ(library.calls("init_rank"), 2 + 2 + 4);
  EXPECT_EQ(library.calls("finalize"), 8);
  EXPECT_EQ(library.calls("destroy"), 8);
  EXPECT_EQ(library.calls("abort"), 0);
}

// Rank 0 needs {0, 2} before {0, 1, 2, 3}, as rank 2 does; {1, 3} comes at any time.
TEST(Communicators, OverlappingSetsAreCreatedInOrderOfUseAndEndedAscending) {
  FakeLibrary library;
  DelayedDevices all(2, 0, library);
  run_processes(4, all, [&](Group& world) {
    const int line = world.rank() % 2;
    Group pair = world.subgroup({line, line + 2}, "pair");
    if (line == 0) expect_sum(pair);
    expect_sum(world);
    if (line == 1) expect_sum(pair);
  });
  // No rank destroys one before it has started to end all of its own.
  const std::vector<std::string> log = library.log();
  EXPECT_EQ(std::ranges::count(log, "finalize"), 8);
  EXPECT_EQ(std::ranges::count(log, "destroy"), 8);
}

// The others wait on their devices for a rank that never arrives.
TEST(Communicators, AreAbortedWhenRankFails) {
  FakeLibrary library;
  DelayedDevices all(3, 0, library);
  FaultyNetwork network(2);
  for (const std::string& outcome :
       outcomes_of_processes(network, {.ranks = 4}, all, [](Group& world) {
         expect_sum_everywhere(world);
         if (world.rank() == 3) {
           std::this_thread::sleep_for(std::chrono::milliseconds(300));
           throw UserError({.operation = "test.fail", .what = "on purpose"});
         }
         at::Tensor x = upload(world, example_values(world.rank(), 100));
         all_reduce_sum(world, x);
         world.rank_device().stream.synchronize();
         expect_sum(world);
         ADD_FAILURE() << "went on";
       }))
    EXPECT_EQ(outcome, "[test.fail] rank 3: on purpose");
  EXPECT_EQ(library.calls("abort"), 4);
}

// Rank 1's work in {1, 3} waits on its device for rank 3, and its work in the world is queued after
// that or finds no space: either abort completes only after the other has started. The rank itself
// fails, or another does.
TEST(Communicators, AreAbortedConcurrently) {
  for (const auto& [failing, full] : {std::pair(3, false), {3, true}, {1, false}}) {
    SCOPED_TRACE(testing::Message() << failing << (full ? ", full" : ""));
    FakeLibrary library;
    Completion hung;
    std::atomic<bool> set_up = false, enqueued = false;
    library.full = [&](const Stream& stream) {
      const bool no_room = full && set_up && stream.device().index == 1 && !hung.ready();
      if (no_room) enqueued = true;
      return no_room;
    };
    DelayedDevices all(8, 0, library);
    FaultyNetwork network(2);
    for (const std::string& outcome :
         outcomes_of_processes(network, {.ranks = 4}, all, [&](Group& world) {
           const int line = world.rank() % 2;
           Group pair = world.subgroup({line, line + 2}, "pair");
           expect_sum(pair);
           expect_sum_everywhere(world);
           const auto fail_when_enqueued = [&] {
             while (!enqueued) std::this_thread::yield();
             throw UserError({.operation = "test.fail", .what = "on purpose"});
           };
           if (world.rank() == 3 && failing == 3) fail_when_enqueued();
           if (world.rank() != 1) world.receive(1, {});  // never sent
           at::Tensor x = upload(world, example_values(1, 100)), y = upload(world, x.cpu());
           all_reduce_sum(pair, x);
           hung = world.rank_device().communication.record();
           set_up = true;
           all_reduce_sum(world, y);
           enqueued = true;
           if (failing == 1) fail_when_enqueued();
           world.barrier();
           ADD_FAILURE() << "went on";
         }))
      EXPECT_EQ(outcome, "[test.fail] rank " + std::to_string(failing) + ": on purpose");
    EXPECT_EQ(library.calls("abort"), 8);
  }
}

TEST(Communicators, LibraryFailureEndsRun) {
  for (const bool on_device : {false, true}) {  // where the rank waits then
    FakeLibrary library;
    std::atomic<bool> broken = false;
    library.failure_of = [&](int rank) {
      return broken && rank == 1 ? LibraryState{.failure = LibraryFailure::kPeer,
                                                .error = "remote error: no route to host"}
                                 : LibraryState{};
    };
    DelayedDevices all(4, 0, library);
    FaultyNetwork network(2);
    for (const std::string& outcome :
         outcomes_of_processes(network, {.ranks = 2}, all, [&](Group& world) {
           expect_sum_everywhere(world);
           if (world.rank() == 0) {
             at::Tensor x = upload(world, example_values(0, 100));
             all_reduce_sum(world, x);
             world.rank_device().stream.synchronize();  // for rank 1, which never comes
             world.barrier();
           }
           broken = true;
           if (on_device) world.receive(0, {});
           expect_sum(world);
         })) {
      EXPECT_NE(outcome.find("[comm.nccl] rank 1, "), std::string::npos) << outcome;
      EXPECT_NE(outcome.find("among ranks 0, 1: NCCL failed"), std::string::npos) << outcome;
      EXPECT_NE(outcome.find("no route to host"), std::string::npos) << outcome;
      EXPECT_NE(outcome.find("set NCCL_SOCKET_IFNAME"), std::string::npos) << outcome;
    }
  }
}

// The library detects a killed process, too, often before the transport, which knows the process.
TEST(Communicators, TransportNamesLostProcess) {
  FakeLibrary library;
  std::atomic<bool> broken = false, noticed = false;
  library.failure_of = [&](int rank) {
    if (!broken) return LibraryState{};
    if (rank == 0) noticed = true;
    return LibraryState{.failure = LibraryFailure::kPeer, .error = "connection closed"};
  };
  DelayedDevices all(5, 0, library);
  FaultyNetwork network(2, {.fate = [&](const Faults::Sent& message) {
                          return broken && message.from == 1 ? Faults::Fate::kKillSender
                                                             : Faults::Fate::kDeliver;
                        }});
  const std::vector<std::string> outcomes =
      outcomes_of_processes(network, {.ranks = 2}, all, [&](Group& world) {
        expect_sum_everywhere(world);
        if (world.rank() == 1) {
          broken = true;
          while (!noticed) std::this_thread::yield();
          world.send(0, {}, at::zeros({4}));
        }
        while (!broken)
          // otherwise the sum is enqueued, and its abort leaves it unchanged
          std::this_thread::yield();
        expect_sum(world);
      });
  EXPECT_NE(outcomes[0].find("rank 1: lost"), std::string::npos) << outcomes[0];
}

// The library has ended the run before the transport detects the killed process.
TEST(Communicators, LaterErrorOfTransportTakesPrecedence) {
  FakeLibrary library;
  std::atomic<bool> broken = false, killed = false;
  library.failure_of = [&](int rank) {
    return broken && rank == 0
               ? LibraryState{.failure = LibraryFailure::kPeer, .error = "connection closed"}
               : LibraryState{};
  };
  DelayedDevices all(10, 0, library);
  FaultyNetwork network(2, {.fate = [&](const Faults::Sent& message) {
                          return killed && message.from == 1 ? Faults::Fate::kKillSender
                                                             : Faults::Fate::kDeliver;
                        }});
  const std::vector<std::string> outcomes =
      outcomes_of_processes(network, {.ranks = 2}, all, [&](Group& world) {
        expect_sum_everywhere(world);
        broken = true;
        if (world.rank() == 0) return expect_sum(world);
        const at::Tensor nothing = at::zeros({1});
        try {
          while (true) {
            world.before_write(nothing);  // throws when the run has failed
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        } catch (const Cancelled&) {
          killed = true;
          throw;
        }
      });
  EXPECT_NE(outcomes[0].find("rank 1: lost"), std::string::npos) << outcomes[0];
}

// The run fails when a rank has joined a communicator without knowing it yet: rank 1 does not end
// its own, and another rank's is aborted when that rank learns of the failure.
TEST(Communicators, AreAbortedIfCreatedWhileRunFails) {
  FakeLibrary library;
  std::atomic<bool> fails = false;
  std::atomic<std::thread::id> joins;
  library.failure_of = [&](int) {
    if (joins == std::this_thread::get_id() && library.calls("init_rank") == 6) {
      fails = true;
      while (library.calls("abort") < 2) std::this_thread::yield();
    }
    return LibraryState{};
  };
  DelayedDevices all(7, 0, library);
  FaultyNetwork network(2);
  for (const std::string& outcome :
       outcomes_of_processes(network, {.ranks = 4}, all, [&](Group& world) {
         expect_sum_everywhere(world);
         if (world.rank() == 1) {
           while (!fails) std::this_thread::yield();
           throw UserError({.operation = "test.fail", .what = "on purpose"});
         }
         if (world.rank() == 3) return;
         Group pair = world.subgroup({0, 2}, "pair");
         if (world.rank() == 2) return void(pair.communicator());
         joins = std::this_thread::get_id();
         EXPECT_THROW(pair.communicator(), Cancelled);
       }))
    EXPECT_EQ(outcome, "[test.fail] rank 1: on purpose");
}

TEST(Communicators, AreNotCreatedIfLibraryCallsWouldWait) {
  FakeLibrary library;
  DelayedDevices all(9, 0, library);
  FaultyNetwork network(2);
  ::setenv("NCCL_COMM_BLOCKING", "1", 1);
  for (const std::string& outcome :
       outcomes_of_processes(network, {.ranks = 2}, all, [](Group& world) { expect_sum(world); }))
    EXPECT_NE(outcome.find("unset NCCL_COMM_BLOCKING"), std::string::npos) << outcome;
  ::unsetenv("NCCL_COMM_BLOCKING");
  EXPECT_EQ(library.calls("init_rank"), 0);
}

// A joining rank waits on the host, where the watchdog sees the awaited rank.
TEST(Communicators, AreNotJoinedWithoutAllRanks) {
  FakeLibrary library;
  DelayedDevices all(6, 0, library);
  FaultyNetwork network(2);
  for (const std::string& outcome : outcomes_of_processes(
           network, {.ranks = 2, .stall_seconds = 0.2, .stall_fatal_seconds = 0.6}, all,
           [](Group& world) {
             EXPECT_EQ(world.exchange_way(), ExchangeWay::kCommunicator);
             world.report_progress("loading");
             if (world.rank() == 1) world.receive(0, {});  // never sent
             expect_sum(world);
           }))
    EXPECT_NE(outcome.find("[comm.wait]"), std::string::npos) << outcome;
  EXPECT_EQ(library.calls("init_rank"), 0);
}

TEST(Communicator, ClosesGroupWhenCallIsRejected) {
  FakeLibrary library;
  const Stream stream(Device{}, std::make_shared<DelayedQueue>());
  const at::Tensor x = delayed(stream).empty({4}, at::kFloat);
  Communicator communicator(library, "self", 0, {0}, Device{}, healthy_run());
  const std::vector<Communicator::Part> parts{{0, x}};
  library.refused = "receive";
  try {
    communicator.exchange(parts, parts, stream);
    FAIL() << "the refusal was lost";
  } catch (const SystemError& error) {
    // the end of the group does not report this
    EXPECT_EQ(error.text().what, "receive is refused");
  }
  library.refused = "";
  while (!communicator.state().done) std::this_thread::yield();
  communicator.exchange(parts, parts,
                        stream);  // otherwise the open group already fails the test
  stream.synchronize();
}

TEST(Communicator, IsAbortedWhenItCannotJoin) {
  FakeLibrary library;
  library.failure_of = [](int) {
    return LibraryState{.failure = LibraryFailure::kMisuse, .error = "invalid usage"};
  };
  Monitor<std::optional<ErrorText>> reported;
  const CommunicatorRun run{
      .failed = [&] { return reported.look([](const auto& it) { return it.has_value(); }); },
      .fail = [&](const Error& error,
                  LibraryFailure) { reported.change([&](auto& it) { it = error.text(); }); }};
  EXPECT_THROW(Communicator(library, "self", 0, {0}, Device{}, run), Cancelled);
  const ErrorText text = reported.look([](const auto& it) { return *it; });
  EXPECT_EQ(text.where, "join among ranks 0");
  EXPECT_EQ(text.fix, "run with NCCL_DEBUG=WARN, which says which call");
  EXPECT_EQ(library.calls("abort"), 1);
  EXPECT_THROW(Communicator(library, "self again", 0, {0}, Device{}, run), Cancelled);
}

TEST(ExchangeWays, AreEqualOnAllRanks) {
  const RankPlace a{0, 22809, 1}, b{0, 22809, 2}, c{1, 22809, 3}, shared{1, 22809, 1},
      without{1, 0, 3}, newer{1, 23203, 3};
  using Places = std::vector<RankPlace>;
  EXPECT_EQ(exchange_way(Places{a, b}), ExchangeWay::kPeers);
  EXPECT_EQ(exchange_way(Places{a, a}), ExchangeWay::kPeers);
  EXPECT_EQ(exchange_way(Places{a, b, c}), ExchangeWay::kCommunicator);
  EXPECT_EQ(exchange_way(Places{a, b, shared}), ExchangeWay::kThroughHost);
  EXPECT_EQ(exchange_way(Places{a, b, without}), ExchangeWay::kThroughHost);
  try {
    exchange_way(Places{a, newer});
    FAIL() << "versions were mixed";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().expected, "2.28.9");
    EXPECT_EQ(error.text().got, "2.32.3");
  }
}

}  // namespace
}  // namespace strata
