#include "strata/embed/inspected_servers.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/rowserver/shard/update_part.h"

namespace strata {
namespace {

/// Element i of the row of an id is 1000 table + id + i / 10. Has the ids of one shard.
class FakeInspection final : public RowInspection {
 public:
  FakeInspection(int shard, std::int64_t version) : shard_(shard), version_(version) {}

  RowValues rows(const std::string& feature, const std::vector<std::uint64_t>& ids) override {
    if (away) throw SystemError({.operation = "fake.rows", .what = "the server is away"});
    const int table = feature == "user" ? 0 : 1, width = table == 0 ? 2 : 3;
    EXPECT_LE(ids.size(), kMostInspectedIds);
    asked += static_cast<std::int64_t>(ids.size());
    RowValues read{.version = version_, .width = width};
    for (const std::uint64_t id : ids) {
      EXPECT_EQ(shard_of(table, id, 2), shard_);
      for (int i = 0; i < width; ++i)
        read.values.push_back(static_cast<float>(1000 * table) + static_cast<float>(id) +
                              static_cast<float>(i) / 10);
    }
    return read;
  }
  std::optional<ReplicaLag> lag() override { return replica; }
  std::string metrics() override { return ""; }
  RowsDigest digest() override { return {}; }
  RowsDigest digest_at(std::int64_t) override { return {}; }
  RowDescription row(const std::string&, std::uint64_t) override { return {}; }
  HotRows hot(const std::string&, int count) override { return HotRows(count); }
  std::vector<TableCounts> sizes() override { return {}; }
  std::uint64_t run() override { return 0; }

  std::int64_t asked = 0;
  bool away = false;
  std::optional<ReplicaLag> replica;

 private:
  int shard_;
  std::int64_t version_;
};

class InspectedServersTest : public testing::Test {
 protected:
  InspectedServersTest() {
    std::vector<std::unique_ptr<RowInspection>> shards;
    for (const std::int64_t version : {7, 5}) {
      shards.push_back(std::make_unique<FakeInspection>(static_cast<int>(shards.size()), version));
      fakes.push_back(dynamic_cast<FakeInspection*>(shards.back().get()));
    }
    servers = std::make_unique<InspectedServers>(
        std::vector<FeatureSpec>{{.name = "user", .width = 2}, {.name = "word", .width = width}},
        std::move(shards));
  }
  std::vector<FeatureRows> read(std::vector<std::uint64_t> users,
                                std::vector<std::uint64_t> words) {
    return servers
        ->read({{.feature = 0, .version = 40, .ids = std::move(users)},
                {.feature = 1, .version = 40, .ids = std::move(words)}})
        ->wait();
  }

  int width = 3;
  std::vector<FakeInspection*> fakes;
  std::unique_ptr<InspectedServers> servers;
};

TEST_F(InspectedServersTest, JoinsRowsOfAllShardsInTheOrderOfTheirIds) {
  std::vector<std::uint64_t> words;
  for (std::uint64_t id = 0; id < 50; ++id) words.push_back(3 * id);
  const std::vector<FeatureRows> rows = read({4, 5, 6, 9}, words);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].values, (std::vector<float>{4, 4.1F, 5, 5.1F, 6, 6.1F, 9, 9.1F}));
  ASSERT_EQ(rows[1].values.size(), 150u);
  for (std::size_t i = 0; i < 50; ++i)
    EXPECT_EQ(rows[1].values[3 * i], static_cast<float>(1000 + 3 * i)) << i;
  EXPECT_GT(fakes[0]->asked, 0);
  EXPECT_GT(fakes[1]->asked, 0);
}

TEST_F(InspectedServersTest, AsksForAtMostAsManyIdsAsAServerAnswers) {
  std::vector<std::uint64_t> users;
  for (std::uint64_t id = 0; id < 50'000; ++id) users.push_back(id);
  const std::vector<FeatureRows> rows = read(users, {});
  ASSERT_EQ(rows[0].values.size(), 100'000u);
  for (std::size_t i = 0; i < 50'000; i += 777)
    EXPECT_EQ(rows[0].values[2 * i], static_cast<float>(i));
  EXPECT_EQ(fakes[0]->asked + fakes[1]->asked, 50'000);
}

TEST_F(InspectedServersTest, StatesTheOldestVersionAndTheNewestKnownOne) {
  read({1, 2, 3}, {4});
  EXPECT_EQ(servers->age().version, 5);
  EXPECT_EQ(servers->age().newest, 7);
  fakes[1]->replica = ReplicaLag{.version = 5, .primary = 9, .following = true};
  read({}, {});
  EXPECT_EQ(servers->age().version, 5) << "servers without a requested id count, too";
  EXPECT_EQ(servers->age().newest, 9);
}

TEST_F(InspectedServersTest, ThrowsWhatAServerThrowsAndReadsLater) {
  fakes[0]->away = true;
  EXPECT_THROW(read({1, 2, 3, 4, 5, 6, 7, 8}, {}), SystemError);
  fakes[0]->away = false;
  EXPECT_EQ(read({1, 2}, {})[0].values, (std::vector<float>{1, 1.1F, 2, 2.1F}));
}

TEST_F(InspectedServersTest, RefusesTablesOfAnotherWidth) {
  std::vector<std::unique_ptr<RowInspection>> shards;
  for (int shard = 0; shard < 2; ++shard)
    shards.push_back(std::make_unique<FakeInspection>(shard, 1));
  InspectedServers wide({{.name = "user", .width = 4}}, std::move(shards));
  EXPECT_THROW(wide.read({{.feature = 0, .version = 1, .ids = {1, 2}}})->wait(), UserError);
}

}  // namespace
}  // namespace strata
