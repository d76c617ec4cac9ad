// Writes the same updates through the log of strata/rowserver/shard and through a column family of
// RocksDB, and reads them back. bench/update_log/README.md says what is measured.
//
//     update_log_bench speed KIND FOLDER BYTES COUNT      {"durable_seconds": [...],
//     "stream_seconds": ...} update_log_bench damage KIND FOLDER                 what a process
//     finds after its files were changed
//
// KIND: log, rocksdb, rocksdb-recycled (write-ahead files are used again). FOLDER is new and is
// left to the caller.
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "strata/base/executor.h"
#include "strata/rowserver/shard/log_record.h"
#include "strata/rowserver/shard/update_log.h"

namespace {

using namespace strata;
using Clock = std::chrono::steady_clock;
using Parts = std::vector<std::span<const std::byte>>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What both keep: updates without a gap, durable when wait_durable() returns.
class Store {
 public:
  virtual ~Store() = default;
  virtual void append(std::int64_t version, const Parts& parts) = 0;
  virtual void wait_durable(std::int64_t version) = 0;
  virtual std::int64_t head() = 0;
  virtual std::size_t read(std::int64_t version) = 0;  // bytes of its parts, checksums verified
};

class LogStore : public Store {
 public:
  explicit LogStore(const std::string& folder) : log_({.folder = folder}, 0) {}
  void append(std::int64_t version, const Parts& parts) override { log_.append(version, parts); }
  void wait_durable(std::int64_t version) override { log_.wait_durable(version); }
  std::int64_t head() override { return log_.head(); }
  std::size_t read(std::int64_t version) override {
    const UpdateLog::Bytes record = log_.record(version);
    std::size_t bytes = 0;
    for (const auto& part : parse_log_record(record).parts) bytes += part.size();
    return bytes;
  }

 private:
  UpdateLog log_;
};

void require(const rocksdb::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

std::string key_of(std::int64_t version) {
  std::string key(8, '\0');
  for (int i = 0; i < 8; ++i) key[i] = static_cast<char>(version >> (8 * (7 - i)));
  return key;
}

rocksdb::Options rocksdb_options(bool recycle) {
  rocksdb::Options options;
  options.create_if_missing = true;
  // Keys ascend and are removed from the front, so that nothing has to be merged; values are random
  // bytes.
  options.disable_auto_compactions = true;
  options.level0_slowdown_writes_trigger = options.level0_stop_writes_trigger = 1 << 20;
  options.compression = rocksdb::kNoCompression;
  options.max_background_jobs = 2;
  options.recycle_log_file_num = recycle ? 4 : 0;
  options.wal_recovery_mode = recycle ? rocksdb::WALRecoveryMode::kPointInTimeRecovery
                                      : rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  return options;
}

// As the log: append() returns when the system has the bytes, an executor makes durable what has
// come since.
class RocksdbStore : public Store {
 public:
  RocksdbStore(const std::string& folder, bool recycle) {
    rocksdb::DB* db = nullptr;
    require(rocksdb::DB::Open(rocksdb_options(recycle), folder, &db));
    db_.reset(db);
    const std::unique_ptr<rocksdb::Iterator> last(db->NewIterator({}));
    last->SeekToLast();
    require(last->status());
    if (last->Valid())
      for (const char byte : last->key().ToString())
        head_ = head_ << 8 | static_cast<unsigned char>(byte);
    durable_ = head_;
  }
  void append(std::int64_t version, const Parts& parts) override {
    const LogRecordPieces record(version, parts);
    std::vector<rocksdb::Slice> slices;
    for (const auto& piece : record.pieces())
      slices.emplace_back(reinterpret_cast<const char*>(piece.data()), piece.size());
    const std::string key = key_of(version);
    const rocksdb::Slice key_slice(key);
    rocksdb::WriteBatch batch(record.size() + 64);
    require(batch.Put(rocksdb::SliceParts(&key_slice, 1),
                      rocksdb::SliceParts(slices.data(), static_cast<int>(slices.size()))));
    require(db_->Write({}, &batch));
    const std::lock_guard lock(mutex_);
    head_ = version;
    if (!std::exchange(submitted_, true)) syncs_.submit([this] { sync(); });
  }
  void wait_durable(std::int64_t version) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return durable_ >= version; });
  }
  std::int64_t head() override { return head_; }
  std::size_t read(std::int64_t version) override {
    rocksdb::PinnableSlice value;
    require(db_->Get({}, db_->DefaultColumnFamily(), key_of(version), &value));
    const auto* const bytes = reinterpret_cast<const std::byte*>(value.data());
    std::size_t size = 0;
    for (const auto& part : parse_log_record({bytes, value.size()}).parts) size += part.size();
    return size;
  }

 private:
  void sync() {
    std::unique_lock lock(mutex_);
    submitted_ = false;
    const std::int64_t target = head_;
    lock.unlock();
    require(db_->SyncWAL());
    lock.lock();
    durable_ = target;
    changed_.notify_all();
  }

  std::unique_ptr<rocksdb::DB> db_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t head_ = 0, durable_ = 0;
  bool submitted_ = false;
  Executor syncs_{{.name = "rocksdb sync"}};
};

std::unique_ptr<Store> open(const std::string& kind, const std::string& folder) {
  if (kind == "log") return std::make_unique<LogStore>(folder);
  if (kind == "rocksdb" || kind == "rocksdb-recycled")
    return std::make_unique<RocksdbStore>(folder, kind == "rocksdb-recycled");
  throw std::runtime_error("no kind " + kind);
}

// Bytes that this process wrote to the disk.
std::int64_t written_bytes() {
  std::ifstream io("/proc/self/io");
  std::string name;
  for (std::int64_t value = 0; io >> name >> value;)
    if (name == "write_bytes:") return value;
  return 0;
}

// Two ranks' parts: `bytes` in all.
class Updates {
 public:
  explicit Updates(std::size_t bytes) : random_(bytes) {
    std::mt19937_64 draw(1);
    for (std::byte& byte : random_) byte = static_cast<std::byte>(draw());
  }
  Parts parts() const {
    const std::span<const std::byte> all(random_);
    return {all.first(all.size() / 2), all.subspan(all.size() / 2)};
  }

 private:
  std::vector<std::byte> random_;
};

nlohmann::json measure_speed(const std::string& kind, const std::string& folder, std::size_t bytes,
                             std::int64_t count) {
  const Updates updates(bytes);
  nlohmann::json result{{"kind", kind}, {"bytes", bytes}, {"count", count}};
  const std::int64_t before = written_bytes();
  std::int64_t version = 0;
  {
    const std::unique_ptr<Store> store = open(kind, folder);
    for (std::int64_t i = 0; i < count; ++i) {
      const Clock::time_point start = Clock::now();
      store->append(++version, updates.parts());
      store->wait_durable(version);
      result["durable_seconds"].push_back(seconds_since(start));
    }
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < count; ++i) store->append(++version, updates.parts());
    store->wait_durable(version);
    result["stream_seconds"] = seconds_since(start);
  }
  result["written_bytes"] = written_bytes() - before;
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<Store> store = open(kind, folder);
  if (store->head() != version) throw std::runtime_error("updates are missing");
  for (std::int64_t i = 1; i <= version; ++i)
    if (store->read(i) != bytes) throw std::runtime_error("an update has other bytes");
  result["read_seconds"] = seconds_since(start);
  return result;
}

constexpr std::int64_t kDamaged = 64;

// The file that holds the updates: the largest.
std::string largest_file(const std::string& folder) {
  std::filesystem::path largest;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file() &&
        (largest.empty() || entry.file_size() > std::filesystem::file_size(largest)))
      largest = entry.path();
  return largest;
}

void flip_middle(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(kDamaged / 2 * (16 << 10));
  file.seekg(middle);
  const int byte = file.get();
  file.seekp(middle);
  file.put(static_cast<char>(byte ^ 1));
}

void cut_tail(const std::string& path) {
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(kDamaged * (16 << 10) - 1000));
}

std::string found_after(const std::string& kind, const std::string& folder,
                        const std::function<void(const std::string&)>& change) {
  const Updates updates(16 << 10);
  {
    const std::unique_ptr<Store> store = open(kind, folder);
    for (std::int64_t version = 1; version <= kDamaged; ++version)
      store->append(version, updates.parts());
    store->wait_durable(kDamaged);
  }
  change(largest_file(folder));
  try {
    const std::unique_ptr<Store> store = open(kind, folder);
    for (std::int64_t version = 1; version <= store->head(); ++version) store->read(version);
    return "opens with " + std::to_string(store->head()) + " of " + std::to_string(kDamaged) +
           " updates";
  } catch (const std::exception& error) {
    return std::string("refuses: ") + error.what();
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    const std::vector<std::string> all(words, words + count);
    if (all.size() == 6 && all[1] == "speed") {
      std::cout << measure_speed(all[2], all[3], std::stoull(all[4]), std::stoll(all[5])) << '\n';
      return 0;
    }
    if (all.size() == 4 && all[1] == "damage") {
      std::cout << nlohmann::json{{"flipped",
                                   found_after(all[2], all[3] + "/flipped", flip_middle)},
                                  {"cut", found_after(all[2], all[3] + "/cut", cut_tail)}}
                << '\n';
      return 0;
    }
    throw std::runtime_error(
        "usage: update_log_bench speed KIND FOLDER BYTES COUNT | damage KIND FOLDER");
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
