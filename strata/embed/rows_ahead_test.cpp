#include "strata/embed/rows_ahead.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/embed/saved_rows.h"
#include "strata/rowserver/shard/map_row_store_test.h"
#include "strata/rowserver/shard/snapshot.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

class RowsAheadTest : public testing::Test {
 protected:
  RowsAheadOptions options(int rank = 0, int ranks = 1, std::int64_t keep = 0) const {
    return {.from = folder,
            .to = folder,
            .fingerprint = 7,
            .rank = rank,
            .ranks = ranks,
            .keep = keep,
            .tables = {{.name = "user", .width = 2}, {.name = "word", .width = 3}}};
  }
  static StepRows rows(std::int64_t step, int table, std::vector<std::uint64_t> ids) {
    StepRows rows{
        .step = step,
        .rows = {.feature = table, .version = step - 2, .ids = std::move(ids), .values = {}}};
    for (const std::uint64_t id : rows.rows.ids)
      for (int i = 0; i < 2 + table; ++i)
        rows.rows.values.push_back(static_cast<float>(id % 100) / 7 + static_cast<float>(i));
    return rows;
  }
  static bool same(const StepRows& a, const StepRows& b) {
    return a.step == b.step && a.rows.feature == b.rows.feature &&
           a.rows.version == b.rows.version && a.rows.ids == b.rows.ids &&
           a.rows.values == b.rows.values;
  }
  std::string refusal(const RowsAheadOptions& of, std::int64_t version) const {
    try {
      RowsAhead(of).load(version);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  ScratchFolder scratch;
  std::string folder = scratch.path("rows");
};

TEST_F(RowsAheadTest, LoadsRowsOfAllRanks) {
  const std::vector<StepRows> first = {rows(10, 0, {0, 3, ~std::uint64_t{0}}), rows(11, 1, {})};
  const std::vector<StepRows> second = {rows(10, 0, {3, 5})};
  RowsAhead(options(0, 2)).save(10, first);
  RowsAhead(options(1, 2)).save(10, second);
  const std::vector<StepRows> all = RowsAhead(options(0, 1)).load(10);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(same(all[0], first[0]) && same(all[1], first[1]) && same(all[2], second[0]));
  EXPECT_NE(refusal(options(), 9).find("ahead-00000000000000000009-rank-0.rows"),
            std::string::npos);
  RowsAhead({}).save(10, first);  // no folder
  EXPECT_TRUE(RowsAhead({}).load(10).empty());
}

TEST_F(RowsAheadTest, RemovesFilesWithTheirCheckpoints) {
  const RowsAhead ahead(options(0, 1, 2));
  for (const std::int64_t version : {10, 20, 30, 40}) ahead.save(version, {rows(version, 0, {1})});
  EXPECT_NE(refusal(options(), 10), "");
  for (const std::int64_t version : {20, 30, 40}) EXPECT_EQ(ahead.load(version).size(), 1u);
}

TEST_F(RowsAheadTest, RemovesFilesOfUnfinishedCheckpointFirst) {
  for (const int rank : {0, 1})
    for (const std::int64_t version : {10, 20, 300, 400})
      RowsAhead(options(rank, 2)).save(version, {rows(version, 0, {1})});
  const auto there = [&](std::int64_t version, int rank) {
    char name[64];
    std::snprintf(name, sizeof name, "/ahead-%020lld-rank-%d.rows", static_cast<long long>(version),
                  rank);
    return fs::exists(folder + name);
  };
  // Resumes at 10 with one rank; the checkpoint of 20 does not exist yet.
  const RowsAhead alone(options(0, 1, 1));
  alone.save(20, {rows(20, 0, {1})});
  for (const std::int64_t version : {300, 400})
    EXPECT_FALSE(there(version, 0) || there(version, 1)) << version;
  EXPECT_FALSE(there(20, 1));
  EXPECT_TRUE(there(10, 0) && there(10, 1)) << "the checkpoint of two ranks that there is";
  EXPECT_EQ(alone.load(10).size(), 2u);
  EXPECT_EQ(alone.load(20).size(), 1u);
  alone.save(30, {rows(30, 0, {1})});
  EXPECT_FALSE(there(10, 0) || there(10, 1));
  EXPECT_EQ(alone.load(20).size(), 1u);
}

// A snapshot without a checkpoint does not count as one of the newest.
TEST_F(RowsAheadTest, KeepsSavedRowsAfterEndedRun) {
  const SavedRows saved(folder, 7, 1);
  MapShardState state;
  for (const std::int64_t version : {10, 300}) saved.save(version, 0, 1, state);
  saved.save(20, 0, 1, state);
  EXPECT_EQ(list_snapshots(folder + "/shard-0"), (std::vector<std::int64_t>{10, 20, 300}));
  saved.save(30, 0, 1, state);
  EXPECT_EQ(list_snapshots(folder + "/shard-0"), (std::vector<std::int64_t>{20, 30, 300}));
}

TEST_F(RowsAheadTest, RefusesUnfitFilesByName) {
  RowsAhead(options(0, 2)).save(10, {rows(10, 1, {2, 4})});
  const std::string first = folder + "/ahead-00000000000000000010-rank-0.rows";
  EXPECT_NE(refusal(options(), 10).find("rank-1.rows"), std::string::npos);
  RowsAhead(options(1, 2)).save(10, {});
  EXPECT_EQ(refusal(options(), 10), "");
  RowsAheadOptions other = options();
  other.fingerprint = 8;
  EXPECT_NE(refusal(other, 10).find("another recipe"), std::string::npos);
  const auto size = static_cast<std::int64_t>(fs::file_size(first));
  for (std::int64_t at = 0; at < size; ++at) {
    std::fstream file(first, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get());
    file.seekp(at), file.put(static_cast<char>(byte ^ 16)), file.flush();
    EXPECT_NE(refusal(options(), 10).find("rank-0.rows"), std::string::npos) << at;
    file.seekp(at), file.put(byte), file.flush();
  }
  EXPECT_EQ(refusal(options(), 10), "");
  EXPECT_NE(refusal(other, 10).find("embedding.reread=true"), std::string::npos);
  fs::resize_file(first, static_cast<std::uintmax_t>(size - 1));
  EXPECT_NE(refusal(options(), 10).find("rank-0.rows"), std::string::npos);
}

}  // namespace
}  // namespace strata
