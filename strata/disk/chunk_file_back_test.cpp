// Goes back to the commit before the last, as needed if a crash interrupts the commit of several
// files.
#include <gtest/gtest.h>

#include <filesystem>

#include "strata/disk/chunk_file.h"
#include "strata/disk/disk_forms_test.h"

namespace strata {
namespace {

const std::vector<std::int64_t> kSizes = {5000, 70'000};

Bytes8 chunk_at(int chunk, int step) {
  return random_bytes(static_cast<std::size_t>(kSizes[static_cast<std::size_t>(chunk)]),
                      static_cast<std::uint64_t>(10 * step + chunk));
}

class ChunkFileBack : public ::testing::Test {
 protected:
  // Writes the first chunk in every step, the second only in step 1.
  static void commit(ChunkFile& file, int step) {
    for (int chunk = 0; chunk < (step == 1 ? 2 : 1); ++chunk) {
      const Bytes8 bytes = chunk_at(chunk, step);
      file.write(chunk, bytes).wait();
    }
    file.commit(step, "step " + std::to_string(step));
  }

  static void expect_step(ChunkFile& file, int step) {
    EXPECT_EQ(file.committed_step(), step);
    EXPECT_EQ(file.user_text(), "step " + std::to_string(step));
    for (int chunk = 0; chunk < 2; ++chunk) {
      Bytes8 into(static_cast<std::size_t>(file.chunk_bytes(chunk)));
      file.read(chunk, into).wait();
      EXPECT_EQ(into, chunk_at(chunk, chunk == 0 ? step : 1)) << chunk;
    }
  }

  std::string root() const { return folder_.path("run"); }
  DiskScratch folder_;
};

TEST_F(ChunkFileBack, PreviousCommitIsIntactUntilNextWrite) {
  {
    const auto file = ChunkFile::create(root(), kSizes);
    EXPECT_EQ(file->previous_step(), std::nullopt);
    EXPECT_THROW(file->go_back(), InternalError);
    commit(*file, 1);
    EXPECT_EQ(file->previous_step(), std::nullopt);
    commit(*file, 2);
    commit(*file, 5);
    EXPECT_EQ(file->previous_step(), 2);
  }
  const auto commits = ChunkFile::commits(root());
  ASSERT_EQ(commits.size(), 2u);
  EXPECT_EQ(commits[0].step, 5);
  EXPECT_EQ(commits[1].step, 2);
  EXPECT_EQ(commits[1].user_text, "step 2");
  {
    const auto file = ChunkFile::open(root());
    expect_step(*file, 5);
    file->go_back();
    expect_step(*file, 2);
    EXPECT_EQ(file->previous_step(), std::nullopt);
  }
  // The last commit has left no trace.
  const auto file = ChunkFile::open(root());
  expect_step(*file, 2);
  EXPECT_EQ(ChunkFile::commits(root()).size(), 1u);
  commit(*file, 3);
  expect_step(*file, 3);
  EXPECT_EQ(file->previous_step(), 2);
}

TEST_F(ChunkFileBack, RefusesToGoBackAfterWrite) {
  const auto file = ChunkFile::create(root(), kSizes);
  commit(*file, 1);
  commit(*file, 2);
  const Bytes8 bytes = chunk_at(0, 9);
  file->write(0, bytes).wait();
  EXPECT_THROW(file->go_back(), InternalError);
  EXPECT_EQ(file->committed_step(), 2);
}

TEST_F(ChunkFileBack, DropsChunksFirstWrittenInLastCommit) {
  const auto file = ChunkFile::create(root(), kSizes);
  const Bytes8 first = chunk_at(0, 1), second = chunk_at(1, 2);
  file->write(0, first).wait();
  file->commit(1, "");
  file->write(1, second).wait();
  file->commit(2, "");
  file->go_back();
  EXPECT_TRUE(file->has(0));
  EXPECT_FALSE(file->has(1));
}

TEST_F(ChunkFileBack, RefusesFolderWithoutCommit) {
  EXPECT_EQ(error_of([&] { ChunkFile::commits(root()); }).text().what,
            "no committed step lies here");
}

}  // namespace
}  // namespace strata
