// What people ask a server about its rows.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/wire/grpc_client.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/rowserver/wire/remote_channel.h"
#include "strata/rowserver/wire/server_processes_test.h"

namespace strata {
namespace {

TEST(EmbedServer, AnswersQuestionsAboutItsRows) {
  const ScratchFolder scratch;
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  options.listen = "127.0.0.1:0";
  EmbedServer server(options);
  RemoteServersOptions remote;
  remote.addresses = {server.address()};
  remote.features = options.features, remote.seed = 3;
  const auto mine = make_remote_servers(remote);
  train(*mine, 0, 0, 12, 3);
  const auto inspection = remote_inspection(server.address(), {});
  const std::string metrics = inspection->metrics();
  for (const char* line : {"strata_embed_version 12\n", "strata_embed_updates_total 12\n",
                           "strata_embed_staleness_count{feature=\"user\"} 12\n",
                           "strata_embed_staleness_bucket{feature=\"word\",le=\"1\"} 1\n",
                           "strata_embed_staleness_bucket{feature=\"word\",le=\"3\"} 12\n",
                           "strata_embed_connected_ranks 1\n"})
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
  EXPECT_THROW(inspection->row("usr", 1), UserError);
  EXPECT_THROW(inspection->digest_at(3), UserError);  // gone
  EXPECT_THROW(inspection->run(), UserError) << "the run continues";
  EXPECT_FALSE(inspection->lag()) << "it is no replica";
  EXPECT_EQ(grpc_health(server.address(), {}), "SERVING");
}

// Each field of each answer, against the rows that the server has in this process.
TEST(EmbedServer, AnswersByGrpcAsInProcess) {
  const ScratchFolder scratch;
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  EmbedServer server(options);
  RemoteServersOptions remote;
  remote.addresses = {server.address()};
  remote.features = options.features, remote.seed = 3;
  const auto mine = make_remote_servers(remote);
  train(*mine, 0, 0, 12, 3);
  RowInspection& here = server.inspection();
  const auto inspection = remote_inspection(server.address(), {});
  EXPECT_EQ(inspection->digest(), here.digest());
  EXPECT_EQ(inspection->digest(), inspection->digest_at(12));
  EXPECT_EQ(inspection->digest().version, 12);

  const std::uint64_t id = gradients_for_test(0, 12, 0)[0].ids[0];
  const RowDescription row = inspection->row("user", id), same = here.row("user", id);
  EXPECT_EQ(row.feature, "user");
  EXPECT_EQ(row.id, id);
  EXPECT_TRUE(row.there);
  EXPECT_FALSE(row.candidate);
  EXPECT_EQ(row.last_update, 12);
  EXPECT_GT(row.hits, 0);
  EXPECT_EQ(row.hits, same.hits);
  EXPECT_EQ(row.tier, same.tier);
  EXPECT_EQ(row.value.size(), 4u);
  EXPECT_EQ(row.value, same.value);
  EXPECT_FALSE(row.state.empty());
  EXPECT_EQ(row.state, same.state);
  EXPECT_FALSE(inspection->row("user", 12345).there);

  const RowValues values = inspection->rows("user", {id, 12345});
  EXPECT_EQ(values, here.rows("user", {id, 12345}));
  EXPECT_EQ(values.version, 12);
  EXPECT_EQ(values.width, 4);
  EXPECT_EQ(std::vector<float>(values.values.begin(), values.values.begin() + 4), row.value);

  const HotRows hot = inspection->hot("word", 30), all = here.hot("word", 30);
  ASSERT_EQ(hot.ids().size(), 30u);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(hot.ids()[i].id, all.ids()[i].id);
    EXPECT_EQ(hot.ids()[i].hits, all.ids()[i].hits);
    EXPECT_EQ(hot.ids()[i].tier, all.ids()[i].tier);
  }
  EXPECT_GE(hot.updates + hot.cold_updates, hot.ids()[0].hits);
  EXPECT_EQ(hot.rows, all.rows);
  EXPECT_EQ(hot.cold_rows, all.cold_rows);
  EXPECT_EQ(hot.updates, all.updates);
  EXPECT_EQ(hot.cold_updates, all.cold_updates);

  const std::vector<TableCounts> sizes = inspection->sizes(), counted = here.sizes();
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[1].feature, "word");
  EXPECT_EQ(sizes[1].counts.rows, hot.rows);
  EXPECT_EQ(sizes[1].counts.cold_rows, hot.cold_rows);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_GT(sizes[i].counts.bytes, 0);
    EXPECT_EQ(sizes[i].counts.bytes, counted[i].counts.bytes);
    EXPECT_EQ(sizes[i].counts.cold_bytes, counted[i].counts.cold_bytes);
  }
}

// Before that it may not have heard who trains: what it is asked for then, it may refuse.
void await_version(EmbedServer& replica, std::int64_t version) {
  for (int i = 0; i < 6000; ++i) {
    if (replica.inspection().lag().value().version == version) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << replica.inspection().lag().value().version;
}

std::string expected_by(EmbedServer& server, std::int64_t version) {
  try {
    return "answered: version " + std::to_string(server.inspection().digest_at(version).version);
  } catch (const UserError& error) {
    return error.text().what + ": " + error.text().expected;
  }
}

TEST(EmbedServer, NamesItsVersionIfALaterOneIsRequested) {
  const ScratchFolder scratch;
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  options.ask_seconds = 0.5;
  RemoteServersOptions remote;
  remote.features = options.features, remote.seed = 3;
  {
    EmbedServer server(options);
    remote.addresses = {server.address()};
    const auto mine = make_remote_servers(remote);
    train(*mine, 0, 0, 12, 3);
    mine->await(12);
    EXPECT_EQ(expected_by(server, 9999), "there is no such version yet: version 12")
        << "a rank is there, and makes none";
  }
  options.ask_seconds = 1000;
  {
    EmbedServer server(options);
    remote.addresses = {server.address()};
    remote.run = 2, remote.version = 12;
    remote.follows = runs_to_follow(remote);
    {
      const auto mine = make_remote_servers(remote);
      train(*mine, 0, 12, 13, 3);
      mine->await(13);
    }
    EXPECT_EQ(expected_by(server, 9999),
              "there is no such version, and a rank that trained has left: version 13");
  }
  EmbedServer server(options);
  EXPECT_EQ(expected_by(server, 9999),
            "there is no such version, and no trainer is connected: version 13")
      << "no trainer has connected since it started";
}

// A replica waits for versions that ranks of its primary make, so it refuses as soon as the primary
// would.
TEST(EmbedServer, ReplicaKnowsWhetherRanksTrainWithPrimary) {
  const ScratchFolder scratch;
  EmbedServer primary(options_for_test(scratch.path(), 0, 1, 1));
  RemoteServersOptions remote;
  remote.addresses = {primary.address()};
  remote.features = options_for_test("", 0, 1, 1).features, remote.seed = 3;
  auto mine = make_remote_servers(remote);
  train(*mine, 0, 0, 12, 3);
  mine->await(12);

  ServerOptions options = replica_for_test(scratch.path(), 0, 1, 1);
  options.ask_seconds = 1.5;  // longer than it takes to see that no trainer is connected
  EmbedServer first(options);
  options.follow = options.listen, options.listen += "-second", options.folder += "-second";
  EmbedServer second(options);
  for (EmbedServer* replica : {&first, &second}) {
    await_version(*replica, 12);
    EXPECT_EQ(replica->inspection().digest_at(12).version, 12);
    EXPECT_EQ(expected_by(*replica, 9999), "there is no such version yet: version 12");
  }
  mine = nullptr;
  options.follow = options.listen, options.listen += "-third", options.folder += "-third";
  options.ask_seconds = 1000;
  EmbedServer third(options);
  await_version(third, 12);
  EXPECT_EQ(third.inspection().digest_at(12).version, 12);
  EXPECT_EQ(expected_by(third, 9999),
            "there is no such version, and no trainer is connected: version 12");
}

TEST(EmbedServer, ReplicaAwaitsPrimaryBeforeReportingNoTraining) {
  const ScratchFolder scratch;
  RemoteServersOptions remote;
  remote.features = options_for_test("", 0, 1, 1).features, remote.seed = 3;
  {
    EmbedServer primary(options_for_test(scratch.path(), 0, 1, 1));
    remote.addresses = {primary.address()};
    const auto mine = make_remote_servers(remote);
    train(*mine, 0, 0, 12, 3);
    mine->await(12);
  }
  EmbedServer replica(replica_for_test(scratch.path(), 0, 1, 1));
  auto answer = std::async(std::launch::async, [&] { return expected_by(replica, 12); });
  // A rank would have come back within that time.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EmbedServer primary(options_for_test(scratch.path(), 0, 1, 1));
  EXPECT_EQ(answer.get(), "answered: version 12");
}

// The only rank of a process that dies: its stream ends without a bye, and it does not reconnect.
class MortalRank {
 public:
  explicit MortalRank(const RemoteServersOptions& remote) {
    RemoteChannelOptions options;
    options.features = remote.features;
    options.hello.fingerprint = fingerprint_of(remote.features, remote.seed);
    options.hello.run = remote.run;
    options.hello.holder = this_process();
    --options.hello.holder.started;  // an earlier process of the same number
    std::vector<std::unique_ptr<ShardChannel>> channels;
    channels.push_back(std::make_unique<RemoteChannel>(
        options, [this, connect = grpc_sessions(remote.addresses[0], {})] {
          const std::lock_guard lock(mutex_);
          if (dead_) throw SystemError({.operation = "test.connect", .what = "the rank is dead"});
          std::unique_ptr<FrameStream> stream = connect();
          stream_ = stream.get();
          return stream;
        }));
    servers_ = make_sharded_servers(remote.features, std::move(channels));
  }
  RowServers& servers() { return *servers_; }
  void die() {
    const std::lock_guard lock(mutex_);
    dead_ = true;
    stream_->cancel();
  }

 private:
  std::mutex mutex_;
  bool dead_ = false;
  FrameStream* stream_ = nullptr;
  std::unique_ptr<RowServers> servers_;
};

TEST(EmbedServer, WaitsForVersionOfTheNextRun) {
  const ScratchFolder scratch;
  EmbedServer server(options_for_test(scratch.path(), 0, 1, 1));
  RemoteServersOptions remote;
  remote.addresses = {server.address()};
  remote.features = options_for_test("", 0, 1, 1).features, remote.seed = 3;
  MortalRank first(remote);
  train(first.servers(), 0, 0, 12, 3);
  first.servers().await(12);
  auto answer = std::async(std::launch::async, [&] { return expected_by(server, 20); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it waits for this run's rows
  first.die();
  remote.run = 2, remote.version = 12;
  remote.follows = runs_to_follow(remote);
  const auto second = make_remote_servers(remote);
  train(*second, 0, 12, 20, 3);
  second->await(20);
  EXPECT_EQ(answer.get(), "answered: version 20");
}

TEST(EmbedServer, RefusesIdsOfAnotherShard) {
  const ScratchFolder scratch;
  EmbedServer server(options_for_test(scratch.path(), 0, 2, 1));
  std::uint64_t mine = 0, other = 0;
  while (shard_of(0, mine, 2) != 0) ++mine;
  while (shard_of(0, other, 2) != 1) ++other;
  RowInspection& rows = server.inspection();
  EXPECT_EQ(rows.rows("user", {mine}).values.size(), 4u);
  const auto expect_other = [](const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "answered for another shard";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("shard 1"), std::string::npos) << error.what();
    }
  };
  expect_other([&] { rows.rows("user", {other}); });
  expect_other([&] { rows.rows("user", {mine, other}); });
  expect_other([&] { rows.row("user", other); });
  std::vector<std::uint64_t> many(10'000, mine);
  EXPECT_EQ(rows.rows("user", many).values.size(), 40'000u);
  many.push_back(mine);
  EXPECT_THROW(rows.rows("user", many), UserError);
}

}  // namespace
}  // namespace strata
