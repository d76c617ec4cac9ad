#include "strata/rowserver/rows/cold_rows.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/rows/row_table.h"

namespace strata {
namespace {

using Ids = std::vector<std::uint64_t>;
constexpr int kWidth = 1024;
constexpr std::size_t kRowsInMemory = 64;

// Rows of 4 KiB, nearly all on disk.
RowTable wide_rows(const std::string& folder) {
  FeatureSpec spec;
  spec.name = "wide";
  spec.width = kWidth;
  spec.optimizer.kind = RowOptimizerKind::kSgd;
  return RowTable({spec}, {.memory_bytes = kRowsInMemory * (26 + 4 * kWidth), .cold = folder});
}

void update(RowTable& table, std::uint64_t id) {
  table.update(static_cast<std::int64_t>(id), 0, Ids{id}, std::vector<float>(kWidth, 1.0f), 1.0);
}

std::vector<float> read(const RowTable& table, std::uint64_t id) {
  std::vector<float> row(kWidth);
  table.read(0, Ids{id}, row);
  return row;
}

TEST(ColdRows, KeepsRowsByFeatureAndIdInAscendingOrder) {
  const ScratchFolder folder;
  ColdRows rows(folder.path("cold"));
  const std::uint64_t largest = ~std::uint64_t{0};
  const auto put = [&](int feature, std::uint64_t id, const std::string& text) {
    rows.put(feature, id, std::as_bytes(std::span(text)));
  };
  put(1, 256, "c");
  put(1, 0, "a");
  put(1, largest, "d");
  put(1, 3, "b");
  put(256, 0, "other");
  put(0, largest, "other");
  std::string all, row;
  rows.visit(1, 0, [&](std::uint64_t, std::span<const std::byte> bytes) {
    all += static_cast<char>(bytes[0]);
    return true;
  });
  EXPECT_EQ(all, "abcd");
  EXPECT_TRUE(rows.get(256, 0, row));
  EXPECT_EQ(row, "other");
  EXPECT_FALSE(rows.get(256, 3, row));
  rows.erase(1, 3);
  EXPECT_FALSE(rows.get(1, 3, row));
}

TEST(ColdRows, StartsEmptyInFolderOfEarlierRows) {
  const ScratchFolder folder;
  const std::string text = "row";
  {
    ColdRows rows(folder.path("cold"));
    rows.put(0, 1, std::as_bytes(std::span(text)));
    // The state that a killed process leaves.
    std::filesystem::copy(folder.path("cold"), folder.path("left"),
                          std::filesystem::copy_options::recursive);
  }
  ColdRows rows(folder.path("left"));
  std::string row;
  EXPECT_FALSE(rows.get(0, 1, row));
}

TEST(ColdRows, RefusesFolderOfAnotherProcess) {
  const ScratchFolder folder;
  const ColdRows rows(folder.path("cold"));
  EXPECT_THROW(ColdRows(folder.path("cold")), UserError);
  EXPECT_THROW(ColdRows("/proc/cold"), UserError);
}

// Names and contents of the files in a folder.
std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

void expect_refused_and_unchanged(const std::string& folder) {
  const auto before = files_in(folder);
  try {
    const ColdRows rows(folder);
    ADD_FAILURE() << "somebody else's folder was taken";
  } catch (const UserError& refused) {
    EXPECT_EQ(refused.text().where, folder);
    EXPECT_NE(refused.text().got.find(" and "), std::string::npos) << refused.what();
    EXPECT_NE(refused.text().fix.find("empty folder"), std::string::npos) << refused.what();
  }
  EXPECT_EQ(files_in(folder), before);
}

TEST(ColdRows, RefusesFoldersOfOtherPrograms) {
  const ScratchFolder folder;
  // A database without the mark belongs to another program.
  {
    const std::string text = "row";
    ColdRows rows(folder.path("cold"));
    rows.put(0, 1, std::as_bytes(std::span(text)));
    std::filesystem::copy(folder.path("cold") + "/" + kColdDatabase, folder.path("theirs"));
  }
  ASSERT_TRUE(std::filesystem::exists(folder.path("theirs") + "/CURRENT"));
  expect_refused_and_unchanged(folder.path("theirs"));
  std::filesystem::create_directory(folder.path("letters"));
  std::ofstream(folder.path("letters") + "/000007.log") << "dear";
  std::ofstream(folder.path("letters") + "/LOCK") << "mine";
  std::ofstream(folder.path("letters") + "/b") << "sir";
  expect_refused_and_unchanged(folder.path("letters"));
}

TEST(ColdRows, LeavesOtherFilesOfItsFolder) {
  const ScratchFolder folder;
  {
    const ColdRows made(folder.path("cold"));
  }
  std::ofstream(folder.path("cold") + "/000007.log") << "mine";
  {
    const ColdRows again(folder.path("cold"));
  }
  EXPECT_EQ(std::filesystem::file_size(folder.path("cold") + "/000007.log"), 4u);
  EXPECT_FALSE(std::filesystem::exists(folder.path("cold") + "/" + kColdDatabase));
}

TEST(ColdRows, CreatesMissingFolder) {
  const ScratchFolder folder;
  const ColdRows rows(folder.path("not") + "/yet/there");
  EXPECT_TRUE(std::filesystem::exists(folder.path("not") + "/yet/there/" + kColdMark));
}

TEST(ColdRows, ReadsColdRowWithoutMovingIt) {
  const ScratchFolder folder;
  RowTable table = wide_rows(folder.path("cold"));
  const std::vector<float> first = read(table, 0);
  for (std::uint64_t id = 0; id < 200; ++id) update(table, id);
  ASSERT_EQ(table.info(0, 0)->tier, RowTier::kDisk);
  const std::uint64_t digest = table.digest();
  EXPECT_EQ(read(table, 0)[5], first[5] - 0.05f);
  EXPECT_EQ(table.info(0, 0)->tier, RowTier::kDisk);
  EXPECT_EQ(table.counts(0).read_cold, 1);
  EXPECT_EQ(table.digest(), digest);
  table.update(200, 0, Ids{0}, std::vector<float>(kWidth, 1.0f), 1.0);
  EXPECT_EQ(table.info(0, 0)->tier, RowTier::kMemory);
  EXPECT_EQ(table.info(0, 0)->hits, 2);
  EXPECT_EQ(read(table, 0)[5], first[5] - 0.05f - 0.05f);
  EXPECT_EQ(table.counts(0).rows + table.counts(0).cold_rows, 200);
}

// RocksDB ends a complete table file with this number.
bool is_whole(std::fstream& file) {
  constexpr std::uint64_t kEnd = 0x88e241b785f4cff7;
  std::uint64_t end = 0;
  file.seekg(-static_cast<std::streamoff>(sizeof end), std::ios::end);
  file.read(reinterpret_cast<char*>(&end), sizeof end);
  file.clear();
  return end == kEnd;
}

TEST(ColdRows, NamesDamagedFile) {
  const ScratchFolder folder;
  RowTable table = wide_rows(folder.path("cold"));
  constexpr std::uint64_t kRows = 9000;  // more than two write buffers
  for (std::uint64_t id = 0; id < kRows; ++id) update(table, id);
  int damaged = 0;
  for (int wait = 0; wait < 200 && damaged == 0; ++wait) {  // RocksDB writes in the background
    for (const auto& entry :
         std::filesystem::directory_iterator(folder.path("cold") + "/" + kColdDatabase)) {
      if (entry.path().extension() != ".sst") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      if (!is_whole(file)) continue;
      for (std::uint64_t at = 1000; at + 1000 < entry.file_size(); at += 4096) {
        file.seekp(static_cast<std::streamoff>(at));
        file.put('!').put('?');
      }
      ++damaged;
    }
    if (!damaged) usleep(50'000);
  }
  ASSERT_GT(damaged, 0);
  std::string error;
  std::uint64_t whole = 0;
  for (std::uint64_t id = 0; id < kRows; ++id) {
    try {
      EXPECT_EQ(read(table, id)[0], read(table, id)[0]);
      ++whole;
    } catch (const SystemError& refused) {
      error = refused.what();
    }
  }
  EXPECT_NE(error.find("a row cannot be read from disk"), std::string::npos) << error;
  EXPECT_NE(error.find(".sst"), std::string::npos) << error;
  EXPECT_GE(whole, kRowsInMemory);
}

// Runs in its own process, which may write files of at most 1 MiB.
[[noreturn]] void fill_the_disk(const std::string& folder) {
  std::signal(SIGXFSZ, SIG_IGN);
  RowTable table = wide_rows(folder);
  const rlimit limit = {1 << 20, 1 << 20};
  setrlimit(RLIMIT_FSIZE, &limit);
  const std::vector<float> first = read(table, 1);
  std::uint64_t id = 0;
  std::string error;
  for (; id < 100'000 && error.empty(); ++id) {
    try {
      update(table, id);
    } catch (const SystemError& full) {
      error = full.what();
    }
  }
  const bool named = error.find("a row cannot be written to disk") != std::string::npos;
  const bool kept = read(table, 1)[0] == first[0] - 0.05f;
  bool refuses = false;
  try {
    update(table, id);
  } catch (const SystemError& refused) {
    refuses = std::string(refused.what()).find("failed halfway") != std::string::npos;
  }
  if (!named || !kept || !refuses) std::fprintf(stderr, "%s %d %d\n", error.c_str(), kept, refuses);
  std::_Exit(named && kept && refuses ? 0 : 1);
}

TEST(ColdRowsDeathTest, ReportsFullDiskAndKeepsRows) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const ScratchFolder folder;
  EXPECT_EXIT(fill_the_disk(folder.path("cold")), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace strata
