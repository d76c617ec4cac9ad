#include "strata/task/recommender/abandoned_runs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/folder.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using Runs = std::vector<std::uint64_t>;

TEST(AbandonedRuns, AreRecordedUntilFirstCheckpoint) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path("saved");
  const std::uint64_t large = ~std::uint64_t{0} - 1;
  EXPECT_EQ(note_run(folder, 5), Runs{});
  EXPECT_EQ(note_run(folder, large), Runs{5});
  EXPECT_EQ(note_run(folder, 8), (Runs{5, large}));
  forget_runs(folder);
  EXPECT_EQ(note_run(folder, 9), Runs{}) << "a checkpoint of one of them may be elsewhere";
}

TEST(AbandonedRuns, AreNoneWithCheckpointOrLiveRun) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path("saved");
  note_run(folder, 5);
  {
    const CheckpointLock other(folder);
    EXPECT_THROW(note_run(folder, 6), UserError);
  }
  fs::create_directory(folder + "/step-00000010");
  std::ofstream(folder + "/step-00000010/manifest.json") << "{}";
  EXPECT_EQ(note_run(folder, 7), Runs{});
  std::ofstream(folder + "/runs-without-checkpoint.json") << "{\"runs\": [1,";
  fs::remove_all(folder + "/step-00000010");
  EXPECT_THROW(note_run(folder, 8), UserError);
}

}  // namespace
}  // namespace strata
