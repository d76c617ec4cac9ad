// Ends a history of steps at every operation (a power cut, which also undoes unsynced writes) and
// at random moments (SIGKILL of the process), and checks that the last committed step exists.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "strata/base/measurement.h"
#include "strata/base/power_cut_test.h"
#include "strata/disk/chunk_file.h"
#include "strata/disk/disk_forms_test.h"

namespace strata {
namespace {

const std::vector<std::int64_t> kSizes = {100, 5000, 70'000, (1 << 20) + 4096 * 3 + 5};

bool is_written(int chunk, std::int64_t step) {
  return chunk == 1 || (static_cast<std::uint64_t>(step) * 2654435761u >> chunk & 1) != 0;
}

Bytes8 chunk_at(int chunk, std::int64_t step) {
  return random_bytes(static_cast<std::size_t>(kSizes[static_cast<std::size_t>(chunk)]),
                      static_cast<std::uint64_t>(step * 10 + chunk));
}

// In step n some chunks are written, always all of the first; then the step is committed.
void perform_step(ChunkFile& file, std::int64_t step) {
  std::vector<Bytes8> bytes;
  std::vector<DiskTransfer> writes;
  for (int chunk = 0; chunk < file.num_chunks(); ++chunk) bytes.push_back(chunk_at(chunk, step));
  for (int chunk = 0; chunk < file.num_chunks(); ++chunk)
    if (step == 1 || is_written(chunk, step))
      writes.push_back(file.write(chunk, bytes[static_cast<std::size_t>(chunk)]));
  for (const DiskTransfer& write : writes) write.wait();
  file.commit(step, "step " + std::to_string(step));
}

void expect_image_of(ChunkFile& file, std::int64_t step) {
  ASSERT_EQ(file.committed_step(), step);
  ASSERT_EQ(file.user_text(), "step " + std::to_string(step));
  for (int chunk = 0; chunk < file.num_chunks(); ++chunk) {
    std::int64_t last = step;
    while (last > 1 && !is_written(chunk, last)) --last;
    Bytes8 into(static_cast<std::size_t>(file.chunk_bytes(chunk)));
    file.read(chunk, into).wait();
    ASSERT_EQ(into, chunk_at(chunk, last)) << "chunk " << chunk << " of step " << step;
  }
}

// Records what was written to the data file since its last sync, so that a power cut can undo it.
class UnsyncedBlocks {
 public:
  // Loses each 4 KiB independently: a disk guarantees no order.
  void lose(const std::string& path, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      for (std::size_t at = 0; at < block->before.size(); at += kDiskAlignment) {
        if (random() % 2 == 0) continue;
        const auto offset = static_cast<::off_t>(block->offset + at);
        ASSERT_GT(::pwrite(descriptor, block->before.data() + at, kDiskAlignment, offset), 0);
      }
    }
    ::close(descriptor);
  }
  void note(int descriptor, const BlockRequest& request) {
    AlignedBuffer before(request.bytes.size());
    ASSERT_EQ(::pread(descriptor, before.bytes().data(), before.bytes().size(),
                      static_cast<::off_t>(request.offset)),
              static_cast<::ssize_t>(request.bytes.size()));
    const std::lock_guard lock(mutex_);
    blocks_.push_back({request.offset, {before.bytes().begin(), before.bytes().end()}});
  }
  void synced() {
    const std::lock_guard lock(mutex_);
    blocks_.clear();
  }
  std::size_t size() const { return blocks_.size(); }

 private:
  struct Block {
    std::uint64_t offset;
    Bytes8 before;
  };
  std::mutex mutex_;
  std::vector<Block> blocks_;
};

// Counts its operations among those of the file system, and fails with it.
class PowerCutBlockIo final : public BlockIo {
 public:
  PowerCutBlockIo(std::unique_ptr<BlockIo> inner, int descriptor, PowerCutFileSystem& files,
                  UnsyncedBlocks& unsynced)
      : inner_(std::move(inner)), descriptor_(descriptor), files_(files), unsynced_(unsynced) {}
  void submit(const BlockRequest& request) override {
    if (request.op != BlockOp::kRead) files_.count();
    if (request.op == BlockOp::kWrite) unsynced_.note(descriptor_, request);
    sync_slot_ = request.op == BlockOp::kSync ? request.slot : sync_slot_;
    inner_->submit(request);
  }
  void wait(std::vector<BlockResult>& results) override {
    inner_->wait(results);
    for (const BlockResult& result : results) {
      if (result.slot != sync_slot_) continue;
      sync_slot_ = -1;
      unsynced_.synced();
    }
  }
  void wake() override { inner_->wake(); }
  const BlockIoProbe& probe() const override { return inner_->probe(); }

 private:
  std::unique_ptr<BlockIo> inner_;
  int descriptor_;
  PowerCutFileSystem& files_;
  UnsyncedBlocks& unsynced_;
  int sync_slot_ = -1;
};

class ChunkFileCrashTest : public DiskFormTest {
 protected:
  ChunkFileOptions chunk_options() const { return {.setting = "test", .file = options()}; }

  // Returns whether the power was cut before the end of the history.
  bool cut_after(int operations, Lost lost) {
    const DiskScratch folder;
    const std::string root = folder.path("a/b");
    PowerCutFileSystem files(operations, lost);
    UnsyncedBlocks unsynced;
    ChunkFileOptions cutting = chunk_options();
    cutting.files = &files;
    cutting.block_io = [&](const BlockIoSetup& setup) {
      return std::make_unique<PowerCutBlockIo>(make_block_io(setup), setup.descriptor, files,
                                               unsynced);
    };
    std::int64_t step = 0, committed = 0;
    bool cut = false;
    try {
      const auto file = ChunkFile::create(root, kSizes, cutting);
      while (step < 3) {
        perform_step(*file, ++step);
        committed = step;
      }
    } catch (const PowerCut&) {
      cut = true;
    }
    files.lose();
    if (std::filesystem::exists(root + "/chunks.data"))
      unsynced.lose(root + "/chunks.data", static_cast<std::uint64_t>(operations));
    if (!ChunkFile::exists(root)) {
      EXPECT_EQ(committed, 0);
      committed = step = 1;
      perform_step(*ChunkFile::create(root, kSizes, chunk_options()), 1);
    }
    const auto file = ChunkFile::open(root, chunk_options(), kSizes);
    const std::int64_t found = *file->committed_step();
    EXPECT_TRUE(found == committed || found == step) << found;
    expect_image_of(*file, found);
    perform_step(*file, found + 1);  // the run resumes
    expect_image_of(*file, found + 1);
    return cut;
  }

  // Reports the step that it begins with and every step that it has committed.
  [[noreturn]] void work_until_killed(const std::string& root, int steps) const {
    try {
      const auto file = ChunkFile::exists(root) ? ChunkFile::open(root, chunk_options(), kSizes)
                                                : ChunkFile::create(root, kSizes, chunk_options());
      for (std::int64_t step = file->committed_step().value_or(0);; perform_step(*file, ++step))
        if (::write(steps, &step, sizeof step) < 0) break;
    } catch (const std::exception& error) {
      ::dprintf(STDERR_FILENO, "%s\n", error.what());
    }
    ::_exit(1);
  }

  void cut_everywhere(Lost lost) {
    int operations = 0;
    while (!HasFailure()) {
      SCOPED_TRACE(operations);
      if (!cut_after(operations++, lost)) break;
    }
    EXPECT_GT(operations, 30);
  }
};
INSTANTIATE_TEST_SUITE_P(Disk, ChunkFileCrashTest,
                         ::testing::Values(DiskForm{DiskBackend::kIoUring, true},
                                           DiskForm{DiskBackend::kThreads, false}),
                         name_of_form);

TEST_P(ChunkFileCrashTest, LosesNoCommittedStepWhereUnsyncedNamesAreGone) {
  cut_everywhere(Lost::kNamesAndBytes);
}

TEST_P(ChunkFileCrashTest, LosesNoCommittedStepWhereNamesAreKeptAndBytesAreGone) {
  cut_everywhere(Lost::kBytes);
}

TEST_P(ChunkFileCrashTest, ResumesAfterKillAtAnyMoment) {
  const std::string root = folder_.path("run");
  std::mt19937_64 random(GetParam().direct ? 1 : 2);
  std::int64_t committed = 0;
  double step_seconds = 0.01;
  for (int kill = 0; kill < 50; ++kill) {
    int steps[2];
    ASSERT_EQ(::pipe(steps), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) work_until_killed(root, steps[1]);
    ::close(steps[1]);
    // Some kills hit the opening of the file, most hit a step: after none to two whole ones.
    std::int64_t reported = 0;
    const auto hear = [&] { return ::read(steps[0], &reported, sizeof reported) > 0; };
    if (kill % 5 != 0) {
      ASSERT_TRUE(hear());
      for (std::uint64_t whole = random() % 3; whole > 0; --whole) {
        const double begin = now_seconds();
        ASSERT_TRUE(hear());
        step_seconds = now_seconds() - begin;
      }
    }
    const double wait = step_seconds * 1.2 * static_cast<double>(random() % 1000) / 1000;
    ::usleep(static_cast<::useconds_t>(wait * 1e6));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));  // killed, not ended by an error
    while (hear()) {
    }
    committed = std::max(committed, reported);
    ::close(steps[0]);
    if (!ChunkFile::exists(root)) {
      ASSERT_EQ(committed, 0);
      continue;
    }
    const auto file = ChunkFile::open(root, chunk_options(), kSizes);
    const std::int64_t found = *file->committed_step();
    ASSERT_TRUE(found == committed || found == committed + 1)
        << found << ", reported " << committed;
    expect_image_of(*file, found);
    committed = found;
  }
  EXPECT_GT(committed, 30);
}

}  // namespace
}  // namespace strata
