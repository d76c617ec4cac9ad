#include "strata/rowserver/shard/shard_server.h"
#include "strata/rowserver/rows/row_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "strata/base/errors.h"
#include "strata/rowserver/local_servers.h"
#include "strata/rowserver/shard/map_row_store_test.h"

namespace strata {
namespace {

UpdatePart part_for_test(int rank, std::int64_t version) {
  return {.gradients = gradients_for_test(rank, version, version - 1),
          .rate_factor = kRateFactorForTest,
          .wire = {}};
}

// Runs a rank that sends `ahead` updates ahead of the rows that it has read: it sends reads early
// and waits for them late. Returns the first version whose rows differ from the reference's, or -1.
std::int64_t run_rank(RowServers& servers, int rank, std::int64_t versions, std::int64_t ahead,
                      ReferenceRows& reference, WirePrecision rows) {
  std::deque<std::unique_ptr<PendingRows>> pending;
  std::int64_t wrong = -1;
  std::uint64_t key = mix_key(static_cast<std::uint64_t>(rank), 5);
  const auto version_of = [&](std::int64_t step) {
    return std::max<std::int64_t>(0, step - ahead);
  };
  std::int64_t sent = 0;  // reads of the steps up to this one
  for (std::int64_t step = 1; step <= versions; ++step) {
    while (sent < std::min(versions, step + ahead - 1))
      pending.push_back(servers.read(reads_for_test(version_of(++sent))));
    const std::int64_t version = version_of(step);
    if (!same_rows(pending.front()->wait(), reference.read(version, rows))) wrong = version;
    pending.pop_front();
    if ((key = mix_key(key, 1)) % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(key / 7 % 300));
    servers.update(step, gradients_for_test(rank, step, version), kRateFactorForTest);
  }
  servers.await(versions);
  return wrong;
}

using Case = std::tuple<int, int, std::int64_t, WirePrecision>;
class LocalServersCases : public testing::TestWithParam<Case> {};

TEST_P(LocalServersCases, MatchSequentialUpdates) {
  const Case shape = GetParam();
  const int ranks = std::get<0>(shape), shards = std::get<1>(shape);
  const std::int64_t ahead = std::get<2>(shape);
  const WirePrecision precision = std::get<3>(shape);
  constexpr std::int64_t kVersions = 40;
  ReferenceRows reference(ranks, kVersions, precision);
  std::vector<std::shared_ptr<RowStore>> rows;
  for (int shard = 0; shard < shards; ++shard) rows.push_back(std::make_shared<MapRowStore>());
  const auto all =
      std::make_shared<LocalShards>(rows, LocalServersOptions{.ranks = ranks,
                                                              .threads = ranks,
                                                              .wire = {precision, precision},
                                                              .version = 0,
                                                              .save = {}});
  auto servers = make_local_servers(all);
  std::vector<std::int64_t> wrong(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto i = static_cast<std::size_t>(rank);
      wrong[i] = run_rank(*servers[i], rank, kVersions, ahead, reference, precision);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), -1));
  MapRowStore::Rows together;
  for (int shard = 0; shard < shards; ++shard)
    together.merge(static_cast<const MapRowStore&>(all->rows(shard)).rows());
  EXPECT_EQ(together, reference.at(kVersions).rows());
  // Staleness: every read is as many updates old as requested; the first ones are less old.
  std::int64_t reads = 0;
  for (int shard = 0; shard < shards; ++shard)
    for (const StalenessCounts& counts : all->shard(shard).counts().staleness)
      for (std::size_t stale = 0; stale < counts.size(); ++stale) {
        reads += counts[stale];
        if (stale == 0 || stale > static_cast<std::size_t>(ahead))
          EXPECT_EQ(counts[stale], 0) << stale;
      }
  EXPECT_EQ(reads, 2 * shards * ranks * kVersions);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LocalServersCases,
    testing::Values(Case{1, 1, 1, WirePrecision::kFp32}, Case{1, 3, 4, WirePrecision::kScaledInt8},
                    Case{2, 1, 1, WirePrecision::kFp32}, Case{2, 2, 8, WirePrecision::kFp16},
                    Case{3, 4, 3, WirePrecision::kScaledFp16}, Case{4, 2, 64, WirePrecision::kFp32},
                    Case{4, 1, 2, WirePrecision::kScaledInt8}));

// With and without helping threads, while rows fit the budget and beyond it.
TEST(LocalServers, ThreadsChangeNoRow) {
  std::vector<FeatureSpec> features(6);
  for (int i = 0; i < 6; ++i) features[i].name = std::to_string(i), features[i].width = 4;
  features[1].admission = {.filter = RowAdmission::Filter::kExact, .threshold = 2};
  std::vector<std::uint64_t> digests;
  for (const int threads : {1, 4}) {
    std::vector<std::shared_ptr<RowStore>> rows;
    std::vector<std::shared_ptr<RowTable>> tables;
    for (int shard = 0; shard < 2; ++shard) {
      tables.push_back(
          std::make_shared<RowTable>(features, RowTableOptions{.memory_bytes = 200000}));
      rows.push_back(tables.back());
    }
    const auto all =
        std::make_shared<LocalShards>(rows, LocalServersOptions{.ranks = 1, .threads = threads});
    auto servers = make_local_servers(all);
    for (std::int64_t version = 1; version <= 30; ++version) {
      std::vector<FeatureRows> gradients;
      for (int feature = 0; feature < 6; ++feature) {
        FeatureRows part{.feature = feature, .version = version - 1, .ids = {}, .values = {}};
        for (std::uint64_t id = 0; id < 400; ++id)
          part.ids.push_back(id * 7 + static_cast<std::uint64_t>(version) % 3 +
                             600 * (version / 3));
        part.values.assign(part.ids.size() * static_cast<std::size_t>(features[feature].width),
                           0.25f * static_cast<float>(version));
        gradients.push_back(std::move(part));
      }
      servers[0]->update(version, std::move(gradients), 1);
      servers[0]->await(version);
    }
    EXPECT_GT(tables[0]->counts(0).evicted, 0);
    for (const auto& table : tables) digests.push_back(table->digest());
  }
  EXPECT_EQ(digests[0], digests[2]);
  EXPECT_EQ(digests[1], digests[3]);
}

TEST(LocalServers, ReadFutureVersions) {
  ReferenceRows reference(1, 3);
  auto servers = make_local_servers({std::make_shared<MapRowStore>()}, {});
  auto later = servers[0]->read(reads_for_test(2));
  // A different version for each feature.
  std::vector<FeatureRead> mixed{reads_for_test(1)[0], reads_for_test(3)[1]};
  auto both = servers[0]->read(mixed);
  for (std::int64_t version = 1; version <= 3; ++version)
    servers[0]->update(version, gradients_for_test(0, version, 0), kRateFactorForTest);
  EXPECT_TRUE(same_rows(later->wait(), reference.read(2)));
  EXPECT_TRUE(same_rows(both->wait(), {reference.read(1)[0], reference.read(3)[1]}));
}

TEST(LocalServers, UpdateWithoutRowsCreatesVersion) {
  auto servers = make_local_servers({std::make_shared<MapRowStore>()}, {});
  servers[0]->update(1, {}, 1);
  servers[0]->await(1);
  EXPECT_EQ(servers[0]->read(reads_for_test(1))->wait()[0].version, 1);
  EXPECT_TRUE(servers[0]->read({})->wait().empty());
}

TEST(LocalServers, SaveOneVersionOnEveryShardOnce) {
  std::vector<std::shared_ptr<RowStore>> rows{std::make_shared<MapRowStore>(),
                                              std::make_shared<MapRowStore>()};
  std::vector<MapRowStore::Rows> saved(2);
  std::atomic<int> calls = 0;
  LocalServersOptions options{.ranks = 2, .wire = {}, .version = 0, .save = {}};
  options.save = [&](int shard, std::int64_t version) {
    EXPECT_EQ(version, 3);
    ++calls;
    const auto i = static_cast<std::size_t>(shard);
    saved[i] = static_cast<MapRowStore&>(*rows[i]).rows();
  };
  auto servers = make_local_servers(rows, options);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      RowServers& mine = *servers[static_cast<std::size_t>(rank)];
      for (std::int64_t version = 1; version <= 6; ++version) {
        mine.update(version, gradients_for_test(rank, version, 0), kRateFactorForTest);
        if (version == 3) mine.save(3);
      }
      mine.await(6);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls, 2);
  saved[0].merge(saved[1]);
  ReferenceRows reference(2, 3);
  EXPECT_EQ(saved[0], reference.at(3).rows());
}

TEST(LocalServers, LeavingRankEndsWaits) {
  auto servers = make_local_servers({std::make_shared<MapRowStore>()},
                                    {.ranks = 2, .wire = {}, .version = 0, .save = {}});
  servers[0]->update(1, {}, 1);
  auto waiting = servers[0]->read(reads_for_test(1));
  auto leaver = std::async(std::launch::async, [&] { servers[1].reset(); });
  EXPECT_THROW(waiting->wait(), SystemError);
  leaver.get();
  EXPECT_THROW(servers[0]->await(1), SystemError);
  servers[0]->await(0);
}

// Calls in a fixed order, without threads.
class ShardServerTest : public testing::Test {
 protected:
  void read(int rank, std::int64_t version, std::vector<FeatureRows>* to) {
    server.read(rank, reads_for_test(version),
                [to](std::vector<FeatureRows> rows, std::exception_ptr) { *to = std::move(rows); });
  }
  MapRowStore rows;
  ShardServer server{
      rows, {.shard = 0, .shards = 1, .ranks = 2, .version = 0, .replayed = 0, .held = false}};
};

TEST_F(ShardServerTest, AppliesARepeatedPartOnce) {
  ReferenceRows reference(2, 2);
  EXPECT_TRUE(server.update(0, 1, part_for_test(0, 1)));
  EXPECT_FALSE(server.update(0, 1, part_for_test(0, 1)));
  EXPECT_TRUE(server.update(1, 1, part_for_test(1, 1)));
  EXPECT_FALSE(server.update(0, 1, part_for_test(0, 1)));
  EXPECT_TRUE(server.update(1, 2, part_for_test(1, 2)));
  EXPECT_EQ(server.version(), 1);
  EXPECT_TRUE(server.update(0, 2, part_for_test(0, 2)));
  EXPECT_EQ(rows.rows(), reference.at(2).rows());
  EXPECT_EQ(server.counts().repeated_parts, 2);
  EXPECT_EQ(server.counts().updates, 2);
}

TEST_F(ShardServerTest, AddsPartsInRankOrder) {
  ReferenceRows reference(2, 1);
  server.update(1, 1, part_for_test(1, 1));
  server.update(0, 1, part_for_test(0, 1));
  EXPECT_EQ(rows.rows(), reference.at(1).rows());
}

TEST_F(ShardServerTest, AnswersAtRequestedVersion) {
  ReferenceRows reference(2, 2);
  std::vector<FeatureRows> at0, at1, at2;
  read(0, 2, &at2);
  read(0, 0, &at0);
  server.update(1, 1, part_for_test(1, 1));
  server.update(1, 2, part_for_test(1, 2));
  read(0, 1, &at1);
  EXPECT_TRUE(at1.empty());
  server.update(0, 1, part_for_test(0, 1));
  EXPECT_TRUE(same_rows(at0, reference.read(0)));
  EXPECT_TRUE(same_rows(at1, reference.read(1)));
  EXPECT_TRUE(at2.empty());
  server.update(0, 2, part_for_test(0, 2));
  EXPECT_TRUE(same_rows(at2, reference.read(2)));
}

TEST_F(ShardServerTest, RefusesRequestsOutOfOrder) {
  const auto ignore = [](std::vector<FeatureRows>, std::exception_ptr) {};
  EXPECT_THROW(server.update(0, 2, part_for_test(0, 2)), UserError);  // 1 is missing
  server.update(0, 1, part_for_test(0, 1));
  EXPECT_THROW(server.read(0, reads_for_test(0), ignore), UserError);  // after its own part
  server.read(1, reads_for_test(0), ignore);
  UpdatePart other_rate = part_for_test(1, 1);
  other_rate.rate_factor = 0.25;
  EXPECT_THROW(server.update(1, 1, other_rate), UserError);
  server.update(1, 1, part_for_test(1, 1));
  EXPECT_THROW(server.at(0, [](std::exception_ptr) {}), UserError);
}

TEST_F(ShardServerTest, RefusesUnknownFeaturesIdsAndWidths) {
  const auto update = [&](FeatureRows gradients) {
    UpdatePart part{.gradients = {}, .rate_factor = 1, .wire = {}};
    part.gradients.push_back(std::move(gradients));
    server.update(0, 1, std::move(part));
  };
  EXPECT_THROW(update({.feature = 2, .version = 0, .ids = {1}, .values = {1}}), UserError);
  EXPECT_THROW(update({.feature = 0, .version = 0, .ids = {1}, .values = {1, 2, 3}}), UserError);
  EXPECT_THROW(update({.feature = 1, .version = 1, .ids = {1}, .values = {1, 2, 3}}), UserError);
  EXPECT_THROW(update({.feature = 1, .version = 0, .ids = {2, 1}, .values = {1, 2, 3, 4, 5, 6}}),
               UserError);
  EXPECT_THROW(update({.feature = 1, .version = 0, .ids = {1, 1}, .values = {1, 2, 3, 4, 5, 6}}),
               UserError);
  const auto ignore = [](std::vector<FeatureRows>, std::exception_ptr) {};
  EXPECT_THROW(server.read(0, {{.feature = -1, .version = 0, .ids = {1}}}, ignore), UserError);
  ShardServer second(
      rows, {.shard = 1, .shards = 2, .ranks = 1, .version = 0, .replayed = 0, .held = false});
  std::uint64_t of_first = 0;
  while (shard_of(0, of_first, 2) != 0) ++of_first;
  EXPECT_THROW(second.read(0, {{.feature = 0, .version = 0, .ids = {of_first}}}, ignore),
               UserError);
  EXPECT_EQ(server.last_part(0), 0);
}

// Stores parts in memory; fails at one version on demand.
class MemoryJournal : public UpdateJournal {
 public:
  void append(std::int64_t version, const std::vector<UpdatePart>& parts) override {
    if (version == fails_at) throw SystemError({.operation = "test.disk", .what = "no space"});
    EXPECT_EQ(version, static_cast<std::int64_t>(updates.size()) + 1);
    updates.push_back(parts);
  }
  std::vector<UpdatePart> replay(std::int64_t version) override {
    return updates[static_cast<std::size_t>(version) - 1];
  }
  std::vector<std::vector<UpdatePart>> updates;
  std::int64_t fails_at = -1;
};

TEST(ShardServerJournal, RewindAnswersReadsOfEarlierVersions) {
  ReferenceRows reference(2, 6);
  MemoryJournal journal;
  MapRowStore rows;
  ShardServer::Options options{
      .shard = 0, .shards = 1, .ranks = 2, .version = 0, .replayed = 0, .held = false};
  {
    ShardServer server(rows, options, &journal);
    for (std::int64_t version = 1; version <= 5; ++version)
      for (int rank = 0; rank < 2; ++rank)
        server.update(rank, version, part_for_test(rank, version));
  }
  // The server was killed; the last snapshot has the rows of version 2.
  rows.set_rows(reference.at(2).rows());
  options.version = 2, options.replayed = 5, options.held = true;
  ShardServer server(rows, options, &journal);
  std::vector<FeatureRows> at2, at4, at6;
  const auto read = [&](int rank, std::int64_t version, std::vector<FeatureRows>* to) {
    server.read(rank, reads_for_test(version),
                [to](std::vector<FeatureRows> got, std::exception_ptr) { *to = std::move(got); });
  };
  read(0, 2, &at2);
  read(1, 4, &at4);
  read(1, 6, &at6);
  EXPECT_FALSE(server.update(0, 5, part_for_test(0, 5)));  // sent again: the journal has it
  EXPECT_TRUE(server.update(0, 6, part_for_test(0, 6)));
  EXPECT_EQ(server.version(), 2);
  server.release();
  EXPECT_EQ(server.version(), 5);
  server.update(1, 6, part_for_test(1, 6));
  EXPECT_TRUE(same_rows(at2, reference.read(2)));
  EXPECT_TRUE(same_rows(at4, reference.read(4)));
  EXPECT_TRUE(same_rows(at6, reference.read(6)));
  EXPECT_EQ(rows.rows(), reference.at(6).rows());
  EXPECT_EQ(journal.updates.size(), 6u);
}

TEST(ShardServerJournal, JournalErrorEndsAllWaits) {
  MemoryJournal journal;
  journal.fails_at = 2;
  MapRowStore rows;
  ShardServer server(
      rows, {.shard = 0, .shards = 1, .ranks = 1, .version = 0, .replayed = 0, .held = false},
      &journal);
  std::exception_ptr read_error, reached_error;
  server.read(0, reads_for_test(2),
              [&](std::vector<FeatureRows>, std::exception_ptr error) { read_error = error; });
  server.when_reached(2, [&](std::exception_ptr error) { reached_error = error; });
  server.update(0, 1, part_for_test(0, 1));
  EXPECT_FALSE(reached_error);
  server.update(0, 2, part_for_test(0, 2));
  EXPECT_THROW(std::rethrow_exception(read_error), SystemError);
  EXPECT_THROW(std::rethrow_exception(reached_error), SystemError);
  EXPECT_THROW(server.update(0, 3, part_for_test(0, 3)), SystemError);
  ReferenceRows reference(1, 1);
  EXPECT_EQ(rows.rows(), reference.at(1).rows());
}

}  // namespace
}  // namespace strata
