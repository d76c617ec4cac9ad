// Cuts the power at every operation of a history of saves and looks at what is left. The file system
// here performs operations for real and notes what was not synced; a cut takes that back.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/reader.h"
#include "strata/checkpoint/writer.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

struct PowerCut {};

// What a cut takes back: names that no sync of their folder made durable, or only the bytes of files
// that were not synced (a file system may write names first).
enum class Lost { kNamesAndBytes, kBytes };

class PowerCutFileSystem : public FileSystem {
 public:
  PowerCutFileSystem(int operations, Lost lost) : left_(operations), lost_(lost) {}

  int create(const std::string& path) override {
    count();
    const bool fresh = !fs::exists(path);
    const int descriptor = FileSystem::create(path);
    if (descriptor < 0) return descriptor;
    path_of_[descriptor] = path;
    synced_bytes_[path] = 0;
    if (fresh) note({Change::kMade, path, ""});
    return descriptor;
  }
  ::ssize_t write(int descriptor, std::span<const std::byte> bytes) override {
    count();
    return FileSystem::write(descriptor, bytes);
  }
  int sync(int descriptor) override {
    count();
    const std::string& path = path_of_.at(descriptor);
    synced_bytes_[path] = fs::file_size(path);
    return 0;
  }
  int close(int descriptor) override {
    path_of_.erase(descriptor);
    return FileSystem::close(descriptor);
  }
  int make_folder(const std::string& path) override {
    count();
    const int result = FileSystem::make_folder(path);
    if (result == 0) note({Change::kMade, path, ""});
    return result;
  }
  int rename(const std::string& from, const std::string& to) override {
    count();
    const int result = FileSystem::rename(from, to);
    if (result != 0) return result;
    for (auto& [path, bytes] : std::map(synced_bytes_))
      if (path.starts_with(from + "/")) {
        synced_bytes_[to + path.substr(from.size())] = bytes;
        synced_bytes_.erase(path);
      }
    for (Change& change : changes_)
      for (std::string* path : {&change.path, &change.to})
        if (path->starts_with(from + "/")) *path = to + path->substr(from.size());
    note({Change::kRenamed, from, to});
    return 0;
  }
  int exchange(const std::string& a, const std::string& b) override {
    count();
    if (FileSystem::exchange(a, b) != 0) return -1;
    const auto other = [&](const std::string& path) {
      if (path.starts_with(a + "/")) return b + path.substr(a.size());
      return path.starts_with(b + "/") ? a + path.substr(b.size()) : path;
    };
    std::map<std::string, std::uintmax_t> moved;
    for (const auto& [path, bytes] : synced_bytes_) moved[other(path)] = bytes;
    synced_bytes_ = moved;
    for (Change& change : changes_) change.path = other(change.path);
    note({Change::kExchanged, a, b});
    return 0;
  }
  int sync_folder(const std::string& path) override {
    count();
    std::erase_if(changes_, [&](const Change& change) {
      return fs::path(change.path).parent_path() == path;
    });
    return 0;
  }
  int remove_all(const std::string& path) override {
    count();
    std::erase_if(changes_, [&](const Change& change) {
      return change.path.starts_with(path + "/") && change.kind == Change::kMade;
    });
    return FileSystem::remove_all(path);
  }

  // After the cut: what was not synced is gone.
  void lose() {
    for (const auto& [path, bytes] : synced_bytes_)
      if (fs::exists(path) && fs::file_size(path) > bytes) fs::resize_file(path, bytes);
    if (lost_ == Lost::kBytes) return;
    for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
      if (change->kind == Change::kMade) fs::remove_all(change->path);
      if (change->kind == Change::kRenamed && fs::exists(change->to))
        fs::rename(change->to, change->path);
      if (change->kind == Change::kExchanged &&
          FileSystem::exchange(change->path, change->to) != 0 && fs::exists(change->to))
        fs::rename(change->to, change->path);  // the other one is removed by now
    }
  }

 private:
  struct Change {
    enum Kind { kMade, kRenamed, kExchanged } kind;
    std::string path, to;
  };
  void count() {
    if (left_-- <= 0) throw PowerCut();
  }
  void note(Change change) { changes_.push_back(std::move(change)); }

  int left_;
  Lost lost_;
  std::vector<Change> changes_;  // of names, since the last sync of their folder
  std::map<int, std::string> path_of_;
  std::map<std::string, std::uintmax_t> synced_bytes_;
};

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

  // Whatever has the name of a checkpoint is whole; returns the newest one's step, -1 for none.
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

  // Returns whether the power was cut before the history was over.
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
    save(root, {9, 9}, posix_file_system());  // whatever is left does not stop the next save
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

TEST_F(PowerCutTest, LosesNoSavedCheckpointWhereNamesThatWereNotSyncedAreGone) {
  cut_everywhere(Lost::kNamesAndBytes);
}

TEST_F(PowerCutTest, ShowsNoHalfCheckpointWhereNamesAreKeptAndBytesAreGone) {
  cut_everywhere(Lost::kBytes);
}

// The recorder itself forgets what it should.
TEST_F(PowerCutTest, ForgetsWhatWasNotSynced) {
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
