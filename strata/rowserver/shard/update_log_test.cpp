#include "strata/rowserver/shard/update_log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "strata/base/scratch_folder.h"
#include "strata/rowserver/shard/log_record.h"

namespace strata {
namespace {

class UpdateLogTest : public testing::Test {
 protected:
  ScratchFolder scratch;
  std::string folder = scratch.path("rows");
};

// Parts that are written separately and parts that are written together.
TEST_F(UpdateLogTest, ReadsPartsOfAnySize) {
  std::mt19937_64 random(4);
  std::vector<std::vector<UpdateLog::Bytes>> updates;
  for (const std::size_t size : {0u, 1u, 1000u, 70'000u, 300'000u, 10u}) {
    std::vector<UpdateLog::Bytes> parts;
    for (const std::size_t more : {std::size_t{0}, size, std::size_t{5}}) {
      UpdateLog::Bytes part(more);
      for (std::byte& byte : part) byte = static_cast<std::byte>(random());
      parts.push_back(std::move(part));
    }
    updates.push_back(std::move(parts));
  }
  const UpdateLogOptions options{.folder = folder};
  {
    UpdateLog log(options, 0);
    log.begin_run({.number = 1, .begin = 0}, 0);
    for (std::size_t i = 0; i < updates.size(); ++i)
      log.append(static_cast<std::int64_t>(i) + 1, {updates[i].begin(), updates[i].end()});
    log.wait_durable(static_cast<std::int64_t>(updates.size()));
  }
  const UpdateLog log(options, 0);
  ASSERT_EQ(log.head(), static_cast<std::int64_t>(updates.size()));
  EXPECT_EQ(log.cut_bytes(), 0);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const auto version = static_cast<std::int64_t>(i) + 1;
    const UpdateLog::Bytes record = log.record(version);
    EXPECT_EQ(version_of_record(record), version);
    std::vector<UpdateLog::Bytes> parts;
    for (const auto part : parse_log_record(record).parts)
      parts.emplace_back(part.begin(), part.end());
    EXPECT_EQ(parts, updates[i]) << version;
  }
}

// Records which files were made durable since the last write.
class SyncsSeen : public FileSystem {
 public:
  int create(const std::string& path) override {
    const int file = FileSystem::create(path);
    const std::lock_guard lock(mutex_);
    names_[file] = path;
    return file;
  }
  ::ssize_t write(int file, std::span<const std::byte> bytes) override {
    {
      const std::lock_guard lock(mutex_);
      lacking_.insert(names_[file]);
    }
    return FileSystem::write(file, bytes);
  }
  int sync(int file) override {
    const int result = FileSystem::sync(file);
    const std::lock_guard lock(mutex_);
    lacking_.erase(names_[file]);
    return result;
  }
  std::set<std::string> lacking() {
    const std::lock_guard lock(mutex_);
    return lacking_;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> names_;
  std::set<std::string> lacking_;
};

TEST_F(UpdateLogTest, NewRunAtEndOfLogSyncsEarlierUpdates) {
  SyncsSeen disk;
  UpdateLog log(
      {.folder = folder, .sync = {.updates = 1000, .milliseconds = 60'000}, .files = &disk}, 0);
  log.begin_run({.number = 1, .begin = 0}, 0);
  const UpdateLog::Bytes part(10);
  for (std::int64_t version = 1; version <= 3; ++version) log.append(version, {part});
  EXPECT_LT(log.durable(), 3) << "the log's thread has time";
  log.begin_run({.number = 2, .begin = 3}, 3);
  EXPECT_EQ(disk.lacking(), std::set<std::string>{});
  EXPECT_EQ(log.durable(), 3);
}

TEST_F(UpdateLogTest, ReplacedListenerIsNotCalled) {
  UpdateLog log({.folder = folder}, 0);
  log.begin_run({.number = 1, .begin = 0}, 0);
  std::promise<void> called;
  std::atomic<bool> over = false;
  log.on_durable([&](std::int64_t, const std::exception_ptr&) {
    called.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    over = true;
  });
  log.append(1, {UpdateLog::Bytes(10)});
  called.get_future().wait();
  log.on_durable(nullptr);
  EXPECT_TRUE(over) << "the call under way has ended";
}

// Runs 2 and 3 began at versions 8 and 12.
TEST_F(UpdateLogTest, ReportsUpdatesSharedWithOlderRun) {
  UpdateLog log({.folder = folder}, 0);
  const UpdateLog::Bytes part(10);
  const auto append = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t version = from; version <= to; ++version) log.append(version, {part});
    log.wait_durable(to);
  };
  log.begin_run({.number = 1, .begin = 0}, 0);
  append(1, 10);
  log.begin_run({.number = 2, .begin = 8}, 8);
  append(9, 12);
  log.begin_run({.number = 3, .begin = 12}, 12);
  append(13, 15);
  EXPECT_EQ(log.shared_with(1, 9), 8);
  EXPECT_EQ(log.shared_with(1, 5), 5);
  EXPECT_EQ(log.shared_with(2, 11), 11);
  EXPECT_EQ(log.shared_with(2, 14), 12);
  EXPECT_EQ(log.shared_with(4, 1), -1);
  log.remove_up_to(8);
  EXPECT_EQ(log.shared_with(2, 14), 12);
  EXPECT_EQ(log.shared_with(1, 9), -1) << "that run 2 began before is no longer in any file";
  log.remove_up_to(12);
  EXPECT_EQ(log.shared_with(2, 11), -1);
  EXPECT_EQ(log.shared_with(3, 13), 13);
}

}  // namespace
}  // namespace strata
