// Tests messages, shutdown and loss over a faulty network. Processes are simulated, each with its
// World, its ranks and its part of the protocol.
#include "strata/comm/peer_protocol.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "strata/comm/collectives.h"
#include "strata/comm/group.h"
#include "strata/comm/rank_cases_test.h"
#include "strata/comm/ranks.h"
#include "strata/transport/faulty_transport.h"

namespace strata {
namespace {

using Fate = Faults::Fate;

constexpr int kProcesses = 3, kRanks = 6;

struct ProtocolOutcome {
  std::string error;
  bool system_error = false;
  std::int64_t bytes_left = 0;
};

// One World for each process; what it throws, and what its ranks still hold when all have ended:
// until then another process may be reading a message of theirs.
std::vector<ProtocolOutcome> run_simulated(FaultyNetwork& network, RanksOptions options,
                                           const RankFunction& function) {
  std::vector<ProtocolOutcome> outcomes(kProcesses);
  std::vector<std::vector<MemoryAccount*>> accounts(kProcesses);
  std::vector<std::jthread> threads;
  options.ranks = kRanks;
  for (int process = 0; process < kProcesses; ++process)
    threads.emplace_back([&, process, options]() mutable {
      ProtocolOutcome& outcome = outcomes[static_cast<std::size_t>(process)];
      options.rendezvous = Rendezvous{.process = process, .processes = kProcesses};
      options.connect = [&](const Rendezvous&) { return network.transport(process); };
      std::mutex mutex;
      try {
        run_ranks(options, [&](Group& group, MemoryAccount& account) {
          {
            const std::lock_guard lock(mutex);
            accounts[static_cast<std::size_t>(process)].push_back(&account);
          }
          function(group, account);
        });
      } catch (const Error& error) {
        outcome.error = error.what();
        outcome.system_error = error.kind() == ErrorKind::kSystem;
      }
    });
  threads.clear();
  for (std::size_t process = 0; process < kProcesses; ++process)
    for (const MemoryAccount* account : accounts[process])
      outcomes[process].bytes_left += account->current_bytes();
  return outcomes;
}

// Small and large messages, sums of all kinds, over all links, in every round.
void work(Group& world, int rounds) {
  const Mesh mesh{{Axis::kPipeline, 3}, {Axis::kData, 2}};
  MeshGroups groups = make_mesh_groups(world, mesh);
  for (int round = 0; round < rounds; ++round) {
    for (const std::int64_t numel : {10, 20000}) {
      at::Tensor x = example_values(world.rank(), numel);
      all_reduce_sum(world, x);
      EXPECT_TRUE(at::equal(x, ordered_sum(kRanks, numel)));
    }
    const int next = (groups[Axis::kPipeline].rank() + 1) % 3,
              previous = (groups[Axis::kPipeline].rank() + 2) % 3;
    for (int i = 0; i < 4; ++i)
      groups[Axis::kPipeline].send(next, {.value = round, .micro_batch = i},
                                   example_values(world.rank() + i, 30000));
    for (int i = 3; i >= 0; --i)
      EXPECT_TRUE(
          at::equal(groups[Axis::kPipeline].receive(previous, {.value = round, .micro_batch = i}),
                    example_values(groups[Axis::kPipeline].world_rank(previous) + i, 30000)));
  }
}

TEST(Messages, AreEqualForAnyOrderAndDelay) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    FaultyNetwork network(kProcesses, {.seed = seed,
                                       .most_delay = std::chrono::microseconds(seed % 2 * 800),
                                       .reorder = true,
                                       .reads_in_place = seed % 3 != 0});
    for (const ProtocolOutcome& outcome :
         run_simulated(network, {}, [](Group& world, MemoryAccount&) { work(world, 2); })) {
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(outcome.bytes_left, 0);
    }
  }
}

// A shard longer than a chunk, to ranks that do not read it in place.
TEST(Messages, AreChunkedIfNotReadInPlace) {
  FaultyNetwork network(kProcesses, {.seed = 1, .reorder = true, .reads_in_place = false});
  const auto outcomes = run_simulated(network, {}, [](Group& world, MemoryAccount&) {
    constexpr std::int64_t kNumel = kRanks * (kChunkElements + 1024);
    at::Tensor x = example_values(world.rank(), kNumel);
    all_reduce_sum(world, x);
    EXPECT_TRUE(at::equal(x, ordered_sum(kRanks, kNumel)));
  });
  for (const ProtocolOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.bytes_left, 0);
  }
}

// Ranks that end at once leave large messages in transit; only the reader waits for them.
TEST(Shutdown, FollowsAllMessages) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    FaultyNetwork network(kProcesses, {.seed = seed,
                                       .most_delay = std::chrono::milliseconds(4),
                                       .reorder = true,
                                       .reads_in_place = seed % 2 == 0});
    const auto outcomes = run_simulated(network, {}, [](Group& world, MemoryAccount&) {
      constexpr int kMessages = 8;
      for (int i = 0; i < kMessages && world.rank() > 0; ++i)
        world.send(0, {.micro_batch = i}, at::full({30000}, world.rank() * 100 + i));
      for (int peer = 1; peer < kRanks && world.rank() == 0; ++peer)
        for (int i = kMessages - 1; i >= 0; --i)
          EXPECT_EQ(world.receive(peer, {.micro_batch = i})[29999].item<float>(),
                    static_cast<float>(peer * 100 + i));
    });
    for (const ProtocolOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(outcome.bytes_left, 0);
    }
  }
}

std::uint64_t messages_of_work() {
  FaultyNetwork network(kProcesses);
  run_simulated(network, {}, [](Group& world, MemoryAccount&) { work(world, 1); });
  return network.messages();
}

// For every message at which a process may die: the others end with one error that names its ranks.
TEST(LostProcess, IsNamedByAllOthersAtAnyTime) {
  const std::uint64_t messages = messages_of_work();
  ASSERT_GT(messages, 50u);
  for (std::uint64_t at = 0; at < messages; at += 1 + messages / 40) {
    SCOPED_TRACE(at);
    std::atomic<int> victim = -1;
    Faults faults{.seed = at, .most_delay = std::chrono::microseconds(at % 2 * 300)};
    faults.fate = [&](const Faults::Sent& message) {
      if (message.number != at) return Fate::kDeliver;
      victim = at % 4 < 2 ? message.from : message.to;
      return at % 4 < 2 ? Fate::kKillSender : Fate::kKillReceiver;
    };
    FaultyNetwork network(kProcesses, faults);
    const auto outcomes =
        run_simulated(network, {}, [](Group& world, MemoryAccount&) { work(world, 1000); });
    const std::string lost = "rank " + std::to_string(2 * victim) + ", rank " +
                             std::to_string(2 * victim + 1) + ": lost";
    for (int process = 0; process < kProcesses; ++process) {
      if (process == victim) continue;
      const ProtocolOutcome& outcome = outcomes[static_cast<std::size_t>(process)];
      EXPECT_TRUE(outcome.system_error);
      EXPECT_NE(outcome.error.find(lost), std::string::npos) << outcome.error;
      EXPECT_EQ(outcome.error, outcomes[static_cast<std::size_t>((victim + 1) % 3)].error);
      EXPECT_EQ(outcome.bytes_left, 0);
    }
  }
}

// Each side of a broken link blames the other; all processes report the same one of the two.
TEST(BrokenLink, EndsAllWithOneError) {
  for (std::uint64_t at = 3; at < 60; at += 7) {
    SCOPED_TRACE(at);
    FaultyNetwork network(kProcesses, {.fate = [&](const Faults::Sent& message) {
                            return message.number == at ? Fate::kBreakLink : Fate::kDeliver;
                          }});
    const auto outcomes =
        run_simulated(network, {}, [](Group& world, MemoryAccount&) { work(world, 1000); });
    for (const ProtocolOutcome& outcome : outcomes) {
      EXPECT_NE(outcome.error.find(": lost"), std::string::npos) << outcome.error;
      EXPECT_TRUE(outcome.system_error);
    }
  }
}

TEST(FailedRank, EndsAllWithItsErrorForAnyOrderOfMessages) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    FaultyNetwork network(
        kProcesses, {.seed = seed, .most_delay = std::chrono::microseconds(500), .reorder = true});
    const int failing = static_cast<int>(seed % kRanks);
    const auto outcomes = run_simulated(network, {}, [&](Group& world, MemoryAccount&) {
      work(world, 1);
      if (world.rank() == failing)
        throw UserError({.operation = "test.fail", .what = "on purpose"});
      work(world, 1000);
    });
    for (const ProtocolOutcome& outcome : outcomes)
      EXPECT_EQ(outcome.error, "[test.fail] rank " + std::to_string(failing) + ": on purpose");
  }
}

// The process reports its failure and then hangs without a shutdown frame.
TEST(FailedProcess, IsNotAwaitedIfItDoesNotLeave) {
  FaultyNetwork network(2);
  Mailboxes of_first(2, 0, 1), of_second(2, 1, 1);
  const std::unique_ptr<Transport> first = network.transport(0), second = network.transport(1);
  const PeerProtocol::Options options{
      .name_of = [](int rank) { return "rank " + std::to_string(rank); },
      .account_of = [](int) -> MemoryAccount& { throw std::logic_error("nothing was sent"); },
      .on_status = {},
      .shutdown_timeout = std::chrono::milliseconds(50)};
  PeerProtocol hangs(of_first, *first, options), leaves(of_second, *second, options);
  hangs.fail(UserError({.operation = "test.fail", .what = "on purpose"}), FailureOf::kRank);
  std::future<void> left = std::async(std::launch::async, [&] { leaves.finish(); });
  EXPECT_EQ(left.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_THROW(of_second.rethrow_failure(), UserError);
  hangs.finish();
}

// A message that never arrives, which does not happen on a real connection: the watchdog ends the
// hanging run.
TEST(DroppedMessage, IsDetectedByWatchdog) {
  FaultyNetwork network(kProcesses, {.fate = [](const Faults::Sent& message) {
                          Frame frame;
                          std::memcpy(&frame, message.header.data(), sizeof frame);
                          const bool fifth =
                              message.from == 1 && frame.has_tensor && frame.address.tag.value == 5;
                          return fifth ? Fate::kDrop : Fate::kDeliver;
                        }});
  const auto outcomes = run_simulated(network, {.stall_seconds = 0.2, .stall_fatal_seconds = 0.6},
                                      [](Group& world, MemoryAccount&) {
                                        if (world.rank() == 2)
                                          for (int i = 0; i < 10; ++i)
                                            world.send(4, {.value = i}, at::full({8}, i));
                                        if (world.rank() == 4)
                                          for (int i = 0; i < 10; ++i)
                                            world.receive(2, {.value = i});
                                        world.barrier();
                                      });
  for (const ProtocolOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.system_error);
    EXPECT_NE(outcome.error.find("[comm.wait]"), std::string::npos) << outcome.error;
    EXPECT_NE(outcome.error.find("progress within 1 s"), std::string::npos) << outcome.error;
  }
}

TEST(ExportedBuffer, IsKeptUntilReleased) {
  FaultyNetwork network(kProcesses);
  const auto outcomes = run_simulated(network, {}, [](Group& world, MemoryAccount& account) {
    constexpr std::int64_t kNumel = 100000;
    if (world.rank() == 0) world.send(5, {}, at::full({kNumel}, 7.0));
    world.barrier();
    if (world.rank() == 0) {
      EXPECT_EQ(account.current_bytes(), 4 * kNumel);
    }
    world.barrier();
    if (world.rank() == 5) {
      const ImportedBuffer buffer = world.import_buffer(0, {});
      EXPECT_EQ(buffer.data(), nullptr);
      EXPECT_EQ(account.current_bytes(), 0);
      float last = 0;
      buffer.read(kNumel - 1, 1, &last);
      EXPECT_EQ(last, 7.0f);
    }
    world.barrier();
    world.barrier();  // the release was sent before the first, and so was handled before this
    EXPECT_EQ(account.current_bytes(), 0);
  });
  for (const ProtocolOutcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

// No rank can read it any more, whether sent before or after, and its exporter may train for days.
TEST(ExportedBuffer, IsFreedWhenItsPossibleReadersHaveEnded) {
  FaultyNetwork network(kProcesses);
  const auto outcomes = run_simulated(network, {}, [](Group& world, MemoryAccount& account) {
    if (world.rank() != 0) return;
    const auto returned = [&] {
      for (int i = 0; i < 20000 && account.current_bytes() > 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return account.current_bytes() == 0;
    };
    world.send(5, {.value = 1}, at::full({100000}, 7.0));
    EXPECT_TRUE(returned());
    world.send(5, {.value = 2}, at::full({100000}, 7.0));
    EXPECT_TRUE(returned());
  });
  for (const ProtocolOutcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

// Its process reports that before it leaves, because it is silent afterwards.
TEST(EndedRank, IsNotReportedSilent) {
  FaultyNetwork network(kProcesses);
  const auto outcomes = run_simulated(network, {.stall_seconds = 0.4, .stall_fatal_seconds = 4},
                                      [](Group& world, MemoryAccount&) {
                                        world.barrier();
                                        if (world.rank() == 0) world.receive(4, {});  // never sent
                                      });
  for (const ProtocolOutcome& outcome : outcomes)
    EXPECT_NE(outcome.error.find("rank 4, which has ended"), std::string::npos) << outcome.error;
}

}  // namespace
}  // namespace strata
