// Cuts the power at every operation of a sequence of saves and checks what is left.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/power_cut_test.h"
#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/reader.h"
#include "strata/checkpoint/writer.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

struct Save {
  std::int64_t step;
  double value;
};

class PowerCutTest : public ::testing::Test {
 protected:
  static void save(const std::string& root, const Save& save, FileSystem& files) {
    const CheckpointWriter writer(root, save.step, {.model = 2, .optimizer = 1}, files);
    writer.prepare();
    const auto tensor = [&](const std::string& name) {
      return std::vector<NamedTensor>{{name, at::full({40}, save.value)}};
    };
    const std::vector<WrittenFile> written = {writer.write_model(0, tensor("a")),
                                              writer.write_model(1, tensor("b")),
                                              writer.write_optimizer(0, tensor("c"))};
    writer.commit({.samples_seen = save.step}, written);
    prune_checkpoints(root, 2, files);
  }

  // Checks that every folder with a checkpoint's name is complete; returns the newest step, -1 for
  // none.
  static std::int64_t newest_whole_step(const std::string& root) {
    std::int64_t newest = -1;
    if (!fs::exists(root)) return newest;
    for (const auto& entry : fs::directory_iterator(root)) {
      const auto step = step_of_folder_name(entry.path().filename());
      if (!step) continue;
      const CheckpointReader reader = CheckpointReader::open(entry.path());
      reader.verify_all();
      const double value = reader.tensor("a")[0].item<double>();
      EXPECT_TRUE(value == static_cast<double>(*step) || value == 10.0 * *step);
      for (const char* name : {"b", "c"})
        EXPECT_TRUE(at::equal(reader.tensor(name), at::full({40}, value)));
      newest = std::max(newest, *step);
    }
    return newest;
  }

  // Returns whether the power was cut before the sequence ended.
  static bool cut_after(int operations, Lost lost) {
    const ScratchFolder folder;
    const std::string root = folder.path("runs/a");
    PowerCutFileSystem files(operations, lost);
    std::int64_t saved = -1;
    bool cut = false;
    try {
      for (const Save& next : {Save{1, 1}, {2, 2}, {2, 20}, {3, 3}, {4, 4}}) {
        save(root, next, files);
        saved = next.step;
      }
    } catch (const PowerCut&) {
      cut = true;
    }
    files.lose();
    EXPECT_GE(newest_whole_step(root), saved);
    save(root, {9, 9}, posix_file_system());  // remains do not prevent the next save
    EXPECT_EQ(newest_whole_step(root), 9);
    return cut;
  }

  static void cut_everywhere(Lost lost) {
    int operations = 0;
    while (!HasFailure()) {
      SCOPED_TRACE(operations);
      if (!cut_after(operations++, lost)) break;
    }
    EXPECT_GT(operations, 100);
  }
};

TEST_F(PowerCutTest, LosesNoCheckpointIfUnsyncedNamesAreLost) {
  cut_everywhere(Lost::kNamesAndBytes);
}

TEST_F(PowerCutTest, HasNoPartialCheckpointIfNamesAreKeptAndBytesLost) {
  cut_everywhere(Lost::kBytes);
}

// The recorder itself drops data that was not synced.
TEST_F(PowerCutTest, RecorderDropsUnsyncedData) {
  const ScratchFolder folder;
  PowerCutFileSystem files(1000, Lost::kNamesAndBytes);
  const auto write = [&](const std::string& name, bool synced) {
    const int descriptor = files.create(folder.path(name));
    files.write(descriptor, std::as_bytes(std::span("text", 4)));
    if (synced) files.sync(descriptor);
    files.close(descriptor);
  };
  write("kept", true);
  write("half", false);
  files.sync_folder(folder.path());
  write("gone", true);
  files.rename(folder.path("kept"), folder.path("renamed"));
  files.lose();
  EXPECT_EQ(fs::file_size(folder.path("kept")), 4u);
  EXPECT_EQ(fs::file_size(folder.path("half")), 0u);
  EXPECT_FALSE(fs::exists(folder.path("gone")));
  EXPECT_FALSE(fs::exists(folder.path("renamed")));
}

}  // namespace
}  // namespace strata
