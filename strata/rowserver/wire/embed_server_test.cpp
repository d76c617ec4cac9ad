// Servers that are killed at any moment, replicas, and trainers that resume.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/local_servers.h"
#include "strata/rowserver/rows/row_table_state.h"
#include "strata/rowserver/wire/grpc_client.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/rowserver/wire/server_processes_test.h"

namespace strata {
namespace {

RemoteServersOptions remote_options(const ServerProcesses& servers, int rank, int ranks) {
  RemoteServersOptions options;
  for (int shard = 0; shard < servers.shards(); ++shard)
    options.addresses.push_back(servers.address(shard));
  options.features = options_for_test("", 0, 1, 1).features;
  options.seed = 3;
  options.rank = rank, options.ranks = ranks;
  options.wire = {WirePrecision::kScaledFp16, WirePrecision::kScaledFp16};
  return options;
}

// The rows of an undisturbed run in one process.
std::uint64_t undisturbed_digest(int shards, int ranks, std::int64_t versions, std::int64_t ahead) {
  std::vector<std::unique_ptr<ShardState>> states;
  std::vector<std::shared_ptr<RowStore>> rows;
  for (int shard = 0; shard < shards; ++shard) {
    states.push_back(make_row_table_state(options_for_test("", 0, 1, 1).features, {.seed = 3}));
    rows.emplace_back(std::shared_ptr<void>(), &states.back()->rows());
  }
  LocalServersOptions options;
  options.ranks = ranks;
  options.wire = {WirePrecision::kScaledFp16, WirePrecision::kScaledFp16};
  options.save = [](int, std::int64_t) {};
  auto servers = make_local_servers(rows, options);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back(
        [&, rank] { train(*servers[static_cast<std::size_t>(rank)], rank, 0, versions, ahead); });
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (const auto& state : states) sum += digest_of(*state);
  return sum;
}

std::uint64_t digest_of(const ServerProcesses& servers, std::int64_t version) {
  std::uint64_t sum = 0;
  for (int shard = 0; shard < servers.shards(); ++shard) {
    const RowsDigest answer = remote_inspection(servers.address(shard), {})->digest();
    EXPECT_EQ(answer.version, version);
    sum += answer.digest;
  }
  return sum;
}

int kills_wanted() {
  const char* kills = std::getenv("STRATA_KILLS");
  return kills ? std::atoi(kills) : 6;
}

TEST(EmbedServer, AppliesEveryUpdateOnceAfterRandomKills) {
  constexpr int kShards = 2, kRanks = 2;
  const int kills = kills_wanted();
  const std::int64_t versions = 60 + 12 * kills;
  for (const std::int64_t ahead : {1, 5}) {
    const ScratchFolder scratch;
    ServerProcesses servers(scratch.path(), kShards, kRanks);
    std::atomic<int> killed = 0;
    std::atomic<bool> over = false;
    double longest = 0;
    std::thread killer([&] {
      std::mt19937_64 random(static_cast<std::uint64_t>(ahead));
      while (!over && killed < kills) {
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 250));
        const int shard = static_cast<int>(random() % kShards);
        const auto began = std::chrono::steady_clock::now();
        servers.kill(shard);
        servers.start(shard);
        while (true) {
          try {
            remote_inspection(servers.address(shard), {})->metrics();
            break;
          } catch (const SystemError&) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
        }
        longest = std::max(
            longest,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
        ++killed;
      }
    });
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        const auto mine = make_remote_servers(remote_options(servers, rank, kRanks));
        train(*mine, rank, 0, versions, ahead, [&](std::int64_t step) {
          // Not faster than kills come, so that they come while it trains.
          while (killed < kills && step > 60 + 12 * killed)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
      });
    for (std::thread& thread : threads) thread.join();
    over = true;
    killer.join();
    EXPECT_EQ(killed, kills);
    EXPECT_EQ(digest_of(servers, versions), undisturbed_digest(kShards, kRanks, versions, ahead));
    std::cout << killed << " kills at staleness " << ahead << ", longest recovery " << longest
              << " s\n";
  }
}

// Until a server answers; how long that took.
double await_answer(const std::string& address) {
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  while (seconds() < 60) {
    try {
      remote_inspection(address, {})->lag();
      return seconds();
    } catch (const SystemError&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ADD_FAILURE() << address << " does not answer";
  return seconds();
}

TEST(EmbedServer, ReplicasCatchUpAfterKills) {
  constexpr int kShards = 2;
  const int kills = std::max(kills_wanted(), 6);
  const std::int64_t versions = 60 + 12 * kills;
  const ScratchFolder scratch;
  // Limits so low that replicas that were away find no log.
  ServerProcesses primaries(scratch.path(), kShards, 1, false, 40 << 10);
  ServerProcesses replicas(scratch.path(), kShards, 1, true, 40 << 10);
  for (int shard = 0; shard < kShards; ++shard) await_answer(replicas.address(shard));
  std::atomic<int> killed = 0;
  double longest = 0;
  std::thread killer([&] {
    std::mt19937_64 random(7);
    for (; killed < kills; ++killed) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 250));
      const int shard = static_cast<int>(random() % kShards);
      ServerProcesses& which = random() % 2 == 0 ? primaries : replicas;
      which.kill(shard);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
      which.start(shard);
      longest = std::max(longest, await_answer(which.address(shard)));
    }
  });
  {
    const auto mine = make_remote_servers(remote_options(primaries, 0, 1));
    train(*mine, 0, 0, versions, 3, [&](std::int64_t step) {
      while (killed < kills && step > 60 + 12 * killed)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  killer.join();
  for (int shard = 0; shard < kShards; ++shard) {
    const auto primary = remote_inspection(primaries.address(shard), {});
    const auto replica = remote_inspection(replicas.address(shard), {}, {.seconds = 60});
    const RowsDigest theirs = primary->digest();
    EXPECT_EQ(theirs.version, versions);
    EXPECT_EQ(replica->digest_at(versions), theirs);  // waits for that version
    EXPECT_EQ(replica->lag().value().version, versions);
    // An answer may be a moment before it.
    for (int i = 0; i < 2000 && grpc_health(replicas.address(shard), {}) != "SERVING"; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(grpc_health(replicas.address(shard), {}), "SERVING");
    const std::string metrics = replica->metrics();
    EXPECT_NE(metrics.find("strata_embed_lag_updates 0\n"), std::string::npos) << metrics;
    EXPECT_NE(metrics.find("strata_embed_different_digests_total 0\n"), std::string::npos);
    std::vector<std::uint64_t> ids;
    for (const std::uint64_t id : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                                   std::uint64_t{4}, ~std::uint64_t{0}})
      if (shard_of(0, id, kShards) == shard) ids.push_back(id);
    EXPECT_EQ(replica->rows("user", ids), primary->rows("user", ids));
  }
  EXPECT_EQ(digest_of(replicas, versions), undisturbed_digest(kShards, 1, versions, 3));
  std::cout << killed << " kills of servers and replicas, longest recovery " << longest << " s\n";
}

TEST(EmbedServer, ReplicaRefusesUpdatesAndForeignPrimaries) {
  const ScratchFolder scratch;
  EmbedServer primary(options_for_test(scratch.path(), 0, 1, 1));
  EmbedServer replica(replica_for_test(scratch.path(), 0, 1, 1));
  RemoteServersOptions remote;
  remote.addresses = {replica.address()};
  remote.features = options_for_test("", 0, 1, 1).features, remote.seed = 3;
  try {
    make_remote_servers(remote)->await(0);
    FAIL() << "a replica was trained";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("replica"), std::string::npos) << error.what();
  }
  ServerOptions other = replica_for_test(scratch.path(), 0, 1, 1);
  other.folder += "-other", other.listen += "-other", other.seed = 4;
  EmbedServer stranger(other);
  EXPECT_THROW(stranger.wait(), UserError);
  other.kept_snapshots = 1;
  EXPECT_THROW(EmbedServer{other}, UserError);
}

TEST(EmbedServer, ResumingTrainerReplacesEndedTrainer) {
  const ScratchFolder scratch;
  ServerProcesses servers(scratch.path(), 2, 1);
  {
    const auto first = make_remote_servers(remote_options(servers, 0, 1));
    train(*first, 0, 0, 57, 1);
  }
  RemoteServersOptions options = remote_options(servers, 0, 1);
  options.run = 2, options.version = 40;
  options.follows = runs_to_follow(options);
  const auto second = make_remote_servers(options);
  train(*second, 0, 40, 70, 1);
  EXPECT_EQ(digest_of(servers, 70), undisturbed_digest(2, 1, 70, 1));
}

}  // namespace
}  // namespace strata
