#include "strata/rowserver/shard/persistent_shard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/shard/map_shard_test.h"
#include "strata/rowserver/shard/snapshot.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

void update_to(PersistentShard& shard, std::int64_t from, std::int64_t to, int ranks = 1) {
  for (std::int64_t version = from; version <= to; ++version)
    for (int rank = 0; rank < ranks; ++rank)
      shard.live()->server->update(rank, version, part_for_test(rank, version));
}

void save(PersistentShard& shard, std::int64_t version) {
  std::exception_ptr failed;
  shard.live()->server->at(version, [&](const std::exception_ptr& error) {
    failed = error;
    try {
      if (!error) shard.save(version);
    } catch (...) {
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class PersistentShardTest : public testing::Test {
 protected:
  std::unique_ptr<PersistentShard> open(int ranks = 1) {
    auto shard =
        std::make_unique<PersistentShard>(options_for_test(folder, ranks), make_map_state());
    shard->live()->server->release();
    return shard;
  }
  void refused_by_name(const std::string& name) {
    try {
      open();
      FAIL() << name << " was taken";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
  ScratchFolder scratch;
  std::string folder = scratch.path("rows");
  ReferenceRows reference{1, 30};
};

TEST_F(PersistentShardTest, RecoversFromLogOnly) {
  {
    const auto shard = open();
    shard->begin_run(1, 0);
    update_to(*shard, 1, 12);
  }
  const auto shard = open();
  EXPECT_EQ(shard->recovery().head, 12);
  EXPECT_EQ(shard->live()->server->version(), 12);
  EXPECT_EQ(shard->log().run().number, 1u);
  EXPECT_EQ(digest(*shard), digest_of(reference.at(12).rows()));
}

TEST_F(PersistentShardTest, RecoversFromSnapshotAndLogAndKeepsTwoSnapshots) {
  {
    const auto shard = open();
    shard->begin_run(1, 0);
    for (const std::int64_t version : {5, 10, 15, 20}) {
      update_to(*shard, version - 4, version);
      save(*shard, version);
    }
    update_to(*shard, 21, 23);
  }
  EXPECT_EQ(list_snapshots(folder), (std::vector<std::int64_t>{15, 20}));
  const auto shard = open();
  EXPECT_EQ(shard->recovery().snapshot, 20);
  EXPECT_EQ(shard->log().first(), 16);
  EXPECT_EQ(digest(*shard), digest_of(reference.at(23).rows()));
  update_to(*shard, 24, 30);
  EXPECT_EQ(digest(*shard), digest_of(reference.at(30).rows()));
}

TEST_F(PersistentShardTest, ResumedRunRemovesLaterUpdates) {
  {
    const auto shard = open();
    shard->begin_run(1, 0);
    update_to(*shard, 1, 10);
    save(*shard, 10);
    update_to(*shard, 11, 17);
    save(*shard, 17);
    update_to(*shard, 18, 20);
    shard->begin_run(2, 13);
    EXPECT_EQ(digest(*shard), digest_of(reference.at(13).rows()));
    EXPECT_EQ(list_snapshots(folder), (std::vector<std::int64_t>{10}));
  }
  const auto shard = open();
  EXPECT_EQ(shard->log().head(), 13);
  EXPECT_EQ(shard->log().run().number, 2u);
  EXPECT_EQ(shard->log().run().begin, 13);
  update_to(*shard, 14, 30);
  EXPECT_EQ(digest(*shard), digest_of(reference.at(30).rows()));
  EXPECT_THROW(shard->begin_run(3, 31), UserError);
}

TEST_F(PersistentShardTest, RefusesVersionBeforeOldestSnapshot) {
  const auto shard = open();
  shard->begin_run(1, 0);
  for (const std::int64_t version : {5, 10, 15}) {
    update_to(*shard, version - 4, version);
    save(*shard, version);
  }
  EXPECT_THROW(shard->begin_run(2, 7), UserError);
  EXPECT_THROW(shard->begin_run(2, 0), UserError) << "saved rows do not restart";
  EXPECT_EQ(list_snapshots(folder), (std::vector<std::int64_t>{10, 15}));
  EXPECT_EQ(shard->log().head(), 15);
}

TEST_F(PersistentShardTest, TruncatesTornLastRecord) {
  std::vector<std::uint64_t> ends;
  std::string path;
  {
    const auto shard = open();
    shard->begin_run(1, 0);
    for (std::int64_t version = 1; version <= 4; ++version) {
      update_to(*shard, version, version);
      for (const std::string& name : files_in(folder))
        if (name.ends_with(".log")) path = folder + "/" + name;
      ends.push_back(fs::file_size(path));
    }
  }
  const std::string copy = scratch.path("copy");
  fs::copy_file(path, copy);
  for (std::uint64_t size = ends[2]; size < ends[3]; size += 1 + size % 5) {
    fs::copy_file(copy, path, fs::copy_options::overwrite_existing);
    fs::resize_file(path, size);
    // A power failure may leave zeros after complete records.
    if (size == ends[2]) fs::resize_file(path, size + 4096);
    {
      const auto shard = open();
      ASSERT_EQ(shard->log().head(), 3) << size;
      ASSERT_EQ(digest(*shard), digest_of(reference.at(3).rows()));
      update_to(*shard, 4, 6);
    }
    // A truncated record must not return when it is no longer at the end of the last file.
    ASSERT_EQ(digest(*open()), digest_of(reference.at(6).rows())) << size;
    for (const std::string& name : files_in(folder))
      if (name.ends_with(".log") && folder + "/" + name != path) fs::remove(folder + "/" + name);
  }
}

TEST_F(PersistentShardTest, RefusesFlippedBitByName) {
  {
    const auto shard = open();
    shard->begin_run(1, 0);
    update_to(*shard, 1, 6);
    save(*shard, 6);
    update_to(*shard, 7, 9);
  }
  std::mt19937_64 random(3);
  for (const std::string& name : files_in(folder)) {
    if (name == kLockName) continue;
    const std::string path = folder + "/" + name;
    const std::uint64_t size = fs::file_size(path);
    for (int trial = 0; trial < 40; ++trial) {
      const std::uint64_t at = trial == 0 ? 0 : trial == 1 ? size - 1 : random() % size;
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const char byte = static_cast<char>(file.get());
      const auto flip = [&](char to) {
        file.seekp(static_cast<std::streamoff>(at));
        file.put(to);
        file.flush();
      };
      flip(static_cast<char>(byte ^ (1 << (random() % 8))));
      refused_by_name(name);
      flip(byte);
    }
    if (name.ends_with(".snapshot")) {
      for (const std::uint64_t cut : {size - 1, size / 2, std::uint64_t{10}, std::uint64_t{0}}) {
        const std::string copy = scratch.path("whole");
        fs::copy_file(path, copy, fs::copy_options::overwrite_existing);
        fs::resize_file(path, cut);
        refused_by_name(name);
        fs::copy_file(copy, path, fs::copy_options::overwrite_existing);
      }
    }
  }
  EXPECT_EQ(digest(*open()), digest_of(reference.at(9).rows()));
}

TEST_F(PersistentShardTest, DigestsMatchRows) {
  const auto shard = open();
  shard->begin_run(1, 0);
  for (std::int64_t version = 1; version <= 9; ++version) {
    update_to(*shard, version, version);
    save(*shard, version);
  }
  EXPECT_EQ(shard->digest_at(9), digest(*shard));
  shard->begin_run(2, 8);
  EXPECT_FALSE(shard->digest_at(9)) << "of rows that never were";
  EXPECT_EQ(shard->digest_at(8), digest_of(reference.at(8).rows()));
  update_to(*shard, 9, 10);
  save(*shard, 10);
  EXPECT_EQ(shard->digest_at(10), digest(*shard)) << "the newest one is not what goes";
}

// A client of the replica may be writing a snapshot, which cuts the log, when the next update
// arrives.
TEST_F(PersistentShardTest, ReplicaAppendsNothingDuringSnapshot) {
  PersistentShard primary(options_for_test(scratch.path("primary")), make_map_state());
  primary.live()->server->release();
  primary.begin_run(1, 0);
  update_to(primary, 1, 6);
  const auto shard = open();
  shard->follow_run({.number = 1, .begin = 0});
  const auto take = [&](std::int64_t version) {
    const auto bytes = std::make_shared<const UpdateLog::Bytes>(primary.log().record(version));
    shard->take_update(parse_log_record(*bytes), {.message = bytes, .bytes = *bytes});
  };
  for (std::int64_t version = 1; version <= 5; ++version) take(version);
  std::thread updater;
  std::int64_t head = 0;
  shard->keep_versions([&] {  // called while a snapshot is written
    updater = std::thread([&] { take(6); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    head = shard->log().head();
    return INT64_MAX;
  });
  save(*shard, 5);
  updater.join();
  shard->keep_versions({});
  EXPECT_EQ(head, 5);
  EXPECT_EQ(shard->log().head(), 6);
  EXPECT_EQ(digest(*shard), digest_of(reference.at(6).rows()));
}

TEST_F(PersistentShardTest, RestartsRowsOfAbandonedRun) {
  const auto shard = open();
  shard->begin_run(3, 0, {1, 2});
  update_to(*shard, 1, 5);
  save(*shard, 5);
  EXPECT_THROW(shard->begin_run(4, 0), UserError);
  EXPECT_THROW(shard->begin_run(4, 0, {1, 2}), UserError);
  EXPECT_EQ(list_snapshots(folder), std::vector<std::int64_t>{5}) << "nothing is lost";
  EXPECT_EQ(digest(*shard), digest_of(reference.at(5).rows()));
  shard->begin_run(4, 0, {1, 3});
  EXPECT_TRUE(list_snapshots(folder).empty());
  update_to(*shard, 1, 8);
  EXPECT_EQ(digest(*shard), digest_of(reference.at(8).rows()));
  // Rows that a run resumed from belong to it, even if other runs saved rows since then.
  save(*shard, 8);
  shard->begin_run(5, 8);
  update_to(*shard, 9, 12);
  save(*shard, 12);
  EXPECT_THROW(shard->begin_run(6, 0, {5}), UserError);
  EXPECT_EQ(list_snapshots(folder), (std::vector<std::int64_t>{8, 12}));
}

TEST_F(PersistentShardTest, RefusesMissingLogFile) {
  {
    const auto shard = open();
    shard->begin_run(1, 0);
    for (const std::int64_t version : {3, 6}) {
      update_to(*shard, version - 2, version);
      shard->log().begin_file();
    }
    update_to(*shard, 7, 9);
  }
  fs::remove(folder + "/updates-00000000000000000004.log");
  refused_by_name("updates-00000000000000000007.log");
}

TEST_F(PersistentShardTest, RefusesFilesOfAnotherRecipeOrShard) {
  {
    const auto shard = open();
    shard->begin_run(1, 0);
    update_to(*shard, 1, 3);
  }
  PersistentShardOptions other = options_for_test(folder);
  other.seed = 2;
  EXPECT_THROW(PersistentShard(other, make_map_state()), UserError);
  other = options_for_test(folder);
  other.shard = 1, other.shards = 2;
  EXPECT_THROW(PersistentShard(other, make_map_state()), UserError);
  const auto shard = open();
  EXPECT_THROW(PersistentShard(options_for_test(folder), make_map_state()), UserError);  // in use
}

// A disk that is full after a number of bytes.
class FullDisk : public FileSystem {
 public:
  explicit FullDisk(std::int64_t bytes) : left(bytes) {}
  ::ssize_t write(int descriptor, std::span<const std::byte> bytes) override {
    if (left <= 0) return errno = ENOSPC, -1;
    const auto some = std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(left.load()));
    const ::ssize_t written = FileSystem::write(descriptor, bytes.first(some));
    left -= written;
    return written;
  }
  std::atomic<std::int64_t> left;
};

TEST_F(PersistentShardTest, FullDiskIsOneErrorAndLosesNoUpdate) {
  std::int64_t there = 0;
  {
    FullDisk disk(1 << 20);
    PersistentShardOptions options = options_for_test(folder);
    options.files = &disk;
    PersistentShard shard(options, make_map_state());
    shard.begin_run(1, 0);
    update_to(shard, 1, 5);
    disk.left = 1000;
    EXPECT_THROW(save(shard, 5), Error);
    disk.left = 1000;
    std::exception_ptr failed;
    shard.live()->server->when_reached(25, [&](std::exception_ptr error) { failed = error; });
    try {
      update_to(shard, 6, 25);
      FAIL() << "the disk was not full";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("updates-"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(failed);
    there = shard.live()->server->version();
    EXPECT_GE(there, 5);
  }
  const auto shard = open();
  EXPECT_EQ(shard->log().head(), there);
  EXPECT_EQ(digest(*shard), digest_of(reference.at(there).rows()));
  EXPECT_TRUE(list_snapshots(folder).empty());
  update_to(*shard, there + 1, 30);
  EXPECT_EQ(digest(*shard), digest_of(reference.at(30).rows()));
}

// ---- The limit of the log

std::int64_t bytes_in(const std::string& folder) {
  std::int64_t bytes = 0;
  for (const std::string& name : files_in(folder))
    bytes += static_cast<std::int64_t>(fs::file_size(folder + "/" + name));
  return bytes;
}

std::int64_t log_bytes_in(const std::string& folder) {
  std::int64_t bytes = 0;
  for (const std::string& name : files_in(folder))
    if (name.ends_with(".log"))
      bytes += static_cast<std::int64_t>(fs::file_size(folder + "/" + name));
  return bytes;
}

class LogLimitTest : public PersistentShardTest {
 protected:
  static constexpr std::int64_t kLimit = 8 << 10, kVersions = 400;
  std::unique_ptr<PersistentShard> open_limited(FileSystem* files = &posix_file_system()) {
    PersistentShardOptions options = options_for_test(folder);
    options.log_limit = kLimit;
    options.files = files;
    auto shard = std::make_unique<PersistentShard>(options, make_map_state());
    shard->live()->server->release();
    return shard;
  }
  ReferenceRows long_reference{1, kVersions};
};

TEST_F(LogLimitTest, LongRunWithoutCheckpointsStaysWithinLimit) {
  std::int64_t most = 0, all = 0;
  {
    const auto shard = open_limited();
    shard->begin_run(1, 0);
    for (std::int64_t version = 1; version <= kVersions; ++version) {
      const std::int64_t before = log_bytes_in(folder);
      update_to(*shard, version, version);
      const std::int64_t now = log_bytes_in(folder);
      all += std::max<std::int64_t>(0, now - before);
      most = std::max(most, now);
    }
    EXPECT_GT(shard->compactions().made, 5);
    EXPECT_EQ(shard->compactions().failed, 0);
  }
  EXPECT_GT(all, 10 * kLimit) << "what the log would be";
  EXPECT_LE(most, kLimit + (4 << 10)) << "one update more, and the heads of files";
  EXPECT_LE(bytes_in(folder), 2 * kLimit);
  EXPECT_EQ(list_snapshots(folder, SnapshotUse::kLogBase).size(), 1u);
  EXPECT_TRUE(list_snapshots(folder).empty());
  const auto shard = open_limited();
  EXPECT_EQ(shard->log().head(), kVersions);
  EXPECT_EQ(digest(*shard), digest_of(long_reference.at(kVersions).rows()));
  // No run owns these checkpoints: a new run may start.
  shard->begin_run(2, 0);
  update_to(*shard, 1, 3);
  EXPECT_EQ(digest(*shard), digest_of(long_reference.at(3).rows()));
}

TEST_F(LogLimitTest, KeepsCheckpointsUntilNewerOnesExist) {
  {
    const auto shard = open_limited();
    shard->begin_run(1, 0);
    update_to(*shard, 1, 10);
    save(*shard, 10);
    update_to(*shard, 11, 20);
    save(*shard, 20);
    update_to(*shard, 21, kVersions);
    EXPECT_GT(shard->log().first(), 21);
    EXPECT_EQ(list_snapshots(folder), (std::vector<std::int64_t>{10, 20}));
    EXPECT_THROW(shard->begin_run(2, 15), UserError) << "the log does not reach back to it";
    EXPECT_EQ(shard->live()->server->version(), kVersions) << "and nothing has changed";
    EXPECT_THROW(shard->begin_run(2, 0), UserError);
  }
  const auto shard = open_limited();
  shard->begin_run(2, 10);
  EXPECT_EQ(digest(*shard), digest_of(long_reference.at(10).rows()));
  EXPECT_TRUE(list_snapshots(folder, SnapshotUse::kLogBase).empty());
  update_to(*shard, 11, kVersions);
  EXPECT_EQ(digest(*shard), digest_of(long_reference.at(kVersions).rows()));
}

TEST_F(LogLimitTest, KeepsVersionsInUse) {
  const auto shard = open_limited();
  shard->begin_run(1, 0);
  shard->keep_versions([] { return 120; });
  update_to(*shard, 1, kVersions);
  EXPECT_LE(shard->log().first(), 121);
  shard->rewind(120);
  EXPECT_LE(shard->live()->server->version(), 120);
  shard->keep_versions({});
}

// Fails every change of the disk from the n-th on, as after a power failure.
class PowerCut : public FileSystem {
 public:
  explicit PowerCut(int changes) : left(changes) {}
  int create(const std::string& path) override { return cut() ? -1 : FileSystem::create(path); }
  ::ssize_t write(int file, std::span<const std::byte> bytes) override {
    return cut() ? -1 : FileSystem::write(file, bytes);
  }
  int rename(const std::string& from, const std::string& to) override {
    return cut() ? -1 : FileSystem::rename(from, to);
  }
  int remove_all(const std::string& path) override {
    return cut() ? -1 : FileSystem::remove_all(path);
  }
  std::atomic<int> left;

 private:
  bool cut() {
    if (left.fetch_sub(1) > 0) return false;
    errno = EIO;
    return true;
  }
};

TEST_F(LogLimitTest, RewindSurvivesEndAtAnyMoment) {
  const std::string whole = scratch.path("whole");
  {
    const auto shard = open_limited();
    shard->begin_run(1, 0);
    update_to(*shard, 1, 10);
    save(*shard, 10);
    update_to(*shard, 11, 300);
    save(*shard, 300);
    update_to(*shard, 301, 320);
    shard->log().begin_file();
    update_to(*shard, 321, 330);
  }
  fs::copy(folder, whole);
  bool through = false;
  int changes = 0;
  for (; !through; ++changes) {
    fs::remove_all(folder);
    fs::copy(whole, folder);
    {
      PowerCut disk(1 << 20);
      const auto shard = open_limited(&disk);
      disk.left = changes;
      try {
        shard->begin_run(2, 10);
        through = true;
      } catch (const Error&) {
      }
      disk.left = 1 << 20;
    }
    const auto shard = open_limited();
    const std::int64_t head = shard->log().head();
    ASSERT_EQ(digest(*shard), digest_of(long_reference.at(head).rows())) << changes;
    shard->begin_run(3, 10);
    ASSERT_EQ(digest(*shard), digest_of(long_reference.at(10).rows())) << changes;
    update_to(*shard, 11, 12);
    ASSERT_EQ(digest(*shard), digest_of(long_reference.at(12).rows())) << changes;
  }
  EXPECT_GT(changes, 5);
}

TEST_F(LogLimitTest, FailedSnapshotDoesNotEndTraining) {
  class NoRoom : public FileSystem {
   public:
    int create(const std::string& path) override {
      if (!full || !path.ends_with(".part")) return FileSystem::create(path);
      errno = ENOSPC;
      return -1;
    }
    std::atomic<bool> full = true;
  } disk;
  const auto shard = open_limited(&disk);
  shard->begin_run(1, 0);
  std::int64_t version = 1;
  for (; shard->compactions().failed < 2; ++version) update_to(*shard, version, version);
  EXPECT_GT(shard->log().bytes(), kLimit);
  EXPECT_EQ(shard->log().first(), 1);
  disk.full = false;
  update_to(*shard, version, kVersions);
  EXPECT_LE(shard->log().bytes(), 2 * kLimit);
  EXPECT_GT(shard->compactions().made, 0);
  EXPECT_EQ(digest(*shard), digest_of(long_reference.at(kVersions).rows()));
}

TEST_F(PersistentShardTest, LoadsOnAnotherNumberOfShards) {
  const auto part_of = [](std::int64_t version, int shard, int shards) {
    UpdatePart whole = part_for_test(0, version),
               part{.gradients = {}, .rate_factor = whole.rate_factor, .wire = {}};
    for (const FeatureRows& rows : whole.gradients) {
      FeatureRows mine{.feature = rows.feature, .version = rows.version, .ids = {}, .values = {}};
      const auto width = rows.values.size() / rows.ids.size();
      for (std::size_t i = 0; i < rows.ids.size(); ++i)
        if (shard_of(rows.feature, rows.ids[i], shards) == shard) {
          mine.ids.push_back(rows.ids[i]);
          mine.values.insert(mine.values.end(),
                             rows.values.begin() + static_cast<std::ptrdiff_t>(i * width),
                             rows.values.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
        }
      part.gradients.push_back(std::move(mine));
    }
    return part;
  };
  std::vector<std::string> old_folders;
  for (int shard = 0; shard < 3; ++shard) {
    old_folders.push_back(scratch.path("old" + std::to_string(shard)));
    PersistentShardOptions options = options_for_test(old_folders.back());
    options.shard = shard, options.shards = 3;
    PersistentShard rows(options, make_map_state());
    rows.begin_run(1, 0);
    for (std::int64_t version = 1; version <= 8; ++version)
      rows.live()->server->update(0, version, part_of(version, shard, 3));
    save(rows, 8);
  }
  std::uint64_t sum = 0;
  for (int shard = 0; shard < 2; ++shard) {
    PersistentShardOptions options = options_for_test(scratch.path("new" + std::to_string(shard)));
    options.shard = shard, options.shards = 2, options.from = old_folders;
    PersistentShard rows(options, make_map_state());
    EXPECT_EQ(rows.log().head(), 8);
    sum += digest(rows);
    rows.begin_run(2, 8);
    rows.live()->server->update(0, 9, part_of(9, shard, 2));
    EXPECT_EQ(rows.live()->server->version(), 9);
  }
  EXPECT_EQ(sum, digest_of(reference.at(8).rows()));
  PersistentShardOptions twice = options_for_test(scratch.path("twice"));
  twice.from = {old_folders[0], old_folders[0], old_folders[1]};
  EXPECT_THROW(PersistentShard(twice, make_map_state()), UserError);
  PersistentShardOptions fewer = options_for_test(scratch.path("fewer"));
  fewer.from = {old_folders[0], old_folders[1]};
  EXPECT_THROW(PersistentShard(fewer, make_map_state()), UserError);
}

}  // namespace
}  // namespace strata
