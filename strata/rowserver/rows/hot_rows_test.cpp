#include <gtest/gtest.h>

#include "strata/base/philox.h"
#include "strata/rowserver/rows/hot_rows.h"

namespace strata {
namespace {

RowRecord row(std::uint64_t id, std::uint32_t hits, RowTier tier = RowTier::kMemory) {
  RowRecord record;
  record.id = id, record.hits = hits, record.tier = tier;
  return record;
}

TEST(HotRows, RanksByUpdatesAndCountsBothTiers) {
  HotRows hot(2);
  hot.add(row(7, 3));
  hot.add(row(9, 5, RowTier::kDisk));
  hot.add(row(5, 3));
  RowRecord candidate = row(1, 100);
  candidate.candidate = true;
  hot.add(candidate);
  const std::vector<HotId> ids = hot.ids();
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0].id, 9u);
  EXPECT_EQ(ids[0].tier, RowTier::kDisk);
  EXPECT_EQ(ids[1].id, 5u) << "of equals the lower one";
  EXPECT_EQ(hot.rows, 2);
  EXPECT_EQ(hot.cold_rows, 1);
  EXPECT_EQ(hot.updates, 6);
  EXPECT_EQ(hot.cold_updates, 5);
}

TEST(HotRows, MergesHotRowsOfShards) {
  HotRows whole(10), shards[3] = {HotRows(10), HotRows(10), HotRows(10)}, together(10);
  for (std::uint64_t id = 0; id < 5000; ++id) {
    const RowRecord one = row(id, static_cast<std::uint32_t>(mix_key(id, 1) % 100000));
    whole.add(one);
    shards[id % 3].add(one);
  }
  for (const HotRows& shard : shards) together.add(shard);
  EXPECT_EQ(together.rows, 5000);
  EXPECT_EQ(together.updates, whole.updates);
  const std::vector<HotId> all = whole.ids(), parts = together.ids();
  ASSERT_EQ(all.size(), 10u);
  ASSERT_EQ(parts.size(), 10u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(parts[i].id, all[i].id);
}

}  // namespace
}  // namespace strata
