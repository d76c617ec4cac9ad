// The only source that includes RocksDB. Keys are feature and id, big-endian, so iterators visit a
// feature's rows in ascending order. RocksDB writes no log: a crash loses the folder, and snapshots
// and update logs restore all rows.
#include "strata/rowserver/rows/cold_rows.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/errors.h"
#include "strata/base/folder_lock.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

constexpr std::size_t kCacheBytes = std::size_t{16} << 20;
constexpr std::size_t kBufferBytes = std::size_t{16}
                                     << 20;  // twice: one is written while the other fills

using Key = std::array<char, 10>;

Key key_of(int feature, std::uint64_t id) {
  Key key;
  key[0] = static_cast<char>(feature >> 8);
  key[1] = static_cast<char>(feature);
  for (int i = 0; i < 8; ++i) key[2 + i] = static_cast<char>(id >> (56 - 8 * i));
  return key;
}

std::uint64_t id_of(const rocksdb::Slice& key) {
  std::uint64_t id = 0;
  for (int i = 0; i < 8; ++i) id = id << 8 | static_cast<unsigned char>(key[2 + i]);
  return id;
}

rocksdb::Slice slice_of(const Key& key) { return {key.data(), key.size()}; }

rocksdb::Options database_options() {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(kCacheBytes);
  table.cache_index_and_filter_blocks = true;  // otherwise their memory grows with the rows
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  rocksdb::Options options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.create_if_missing = true;
  options.write_buffer_size = kBufferBytes;
  options.max_write_buffer_number = 2;
  options.compression = rocksdb::kNoCompression;  // weights and states hardly compress
  options.paranoid_checks = true;
  options.max_open_files = 256;
  options.keep_log_file_num = 1;
  options.info_log_level = rocksdb::ERROR_LEVEL;
  return options;
}

constexpr const char* kOperation = "embed.cold_rows";
constexpr const char* kAnotherFolder = "set embedding.cold (--cold) to an empty folder";

// Runs before any write, because the lock would overwrite a file of the same name.
void require_own_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error == std::errc::no_such_file_or_directory) return;
  if (error)
    throw_error(file_error(kOperation, folder, "rows cannot be kept in this folder", error.value(),
                           kAnotherFolder));
  // A killed process may have left the lock without the mark.
  std::erase(names, kLockName);
  if (names.empty() || std::ranges::find(names, kColdMark) != names.end()) return;
  const std::string one = *std::ranges::min_element(names);
  throw UserError(
      {.operation = kOperation,
       .where = folder,
       .what = "the folder has files that this program has not marked as its own",
       .expected = std::string("an empty folder, or one with the mark ") + kColdMark +
                   "; a version of this program without the mark may have left its "
                   "database, which snapshots and logs do without",
       .got = quote(one) +
              (names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : ""),
       .fix = kAnotherFolder});
}

const std::string& own_folder(const std::string& folder) {
  require_own_folder(folder);
  return folder;
}

}  // namespace

struct ColdRows::Database {
  explicit Database(const std::string& folder)
      : lock(own_folder(folder), {.operation = kOperation,
                                  .in_use = "another process keeps its rows here",
                                  .unwritable = "rows cannot be kept in this folder",
                                  .fix = kAnotherFolder}),
        folder(folder + "/" + kColdDatabase) {
    write_file(folder + "/" + kColdMark,
               "Strata removes the database in this folder whenever it starts or ends.\n");
  }

  void require(const rocksdb::Status& status, const char* what) const {
    if (status.ok()) return;
    const bool full = status.IsNoSpace();
    throw SystemError({.operation = kOperation,
                       .where = folder,
                       .what = what,
                       .got = status.ToString(),
                       .fix = full ? "make room there, then start again from the last snapshot"
                                   : "look at the disk, then start again from the last snapshot"});
  }

  FolderLock lock;
  std::string folder;
  rocksdb::Options options = database_options();
  rocksdb::ReadOptions read;
  rocksdb::WriteOptions write;
  std::unique_ptr<rocksdb::DB> rows;
};

ColdRows::ColdRows(const std::string& folder) : database_(std::make_unique<Database>(folder)) {
  Database& db = *database_;
  db.write.disableWAL = true;
  db.read.verify_checksums = true;
  rocksdb::Status status = rocksdb::DestroyDB(db.folder, db.options);
  rocksdb::DB* opened = nullptr;
  if (status.ok()) status = rocksdb::DB::Open(db.options, db.folder, &opened);
  db.rows.reset(opened);
  if (!status.ok())
    throw UserError({.operation = kOperation,
                     .where = db.folder,
                     .what = "rows cannot be kept in this folder",
                     .expected = "a folder that this process alone uses and may write to",
                     .got = status.ToString(),
                     .fix = kAnotherFolder});
}

ColdRows::~ColdRows() {
  if (!database_->rows) return;
  database_->rows.reset();
  rocksdb::DestroyDB(database_->folder, database_->options).PermitUncheckedError();
}

void ColdRows::put(int feature, std::uint64_t id, std::span<const std::byte> row) {
  const Key key = key_of(feature, id);
  const rocksdb::Slice value(reinterpret_cast<const char*>(row.data()), row.size());
  database_->require(database_->rows->Put(database_->write, slice_of(key), value),
                     "a row cannot be written to disk");
}

bool ColdRows::get(int feature, std::uint64_t id, std::string& row) const {
  const Key key = key_of(feature, id);
  const rocksdb::Status status = database_->rows->Get(database_->read, slice_of(key), &row);
  if (status.IsNotFound()) return false;
  database_->require(status, "a row cannot be read from disk");
  return true;
}

void ColdRows::erase(int feature, std::uint64_t id) {
  const Key key = key_of(feature, id);
  database_->require(database_->rows->Delete(database_->write, slice_of(key)),
                     "a row cannot be removed from disk");
}

void ColdRows::visit(int feature, std::uint64_t first, const Visitor& visitor) const {
  const std::unique_ptr<rocksdb::Iterator> at(database_->rows->NewIterator(database_->read));
  const Key begin = key_of(feature, first);
  for (at->Seek(slice_of(begin)); at->Valid(); at->Next()) {
    if (std::memcmp(at->key().data(), begin.data(), 2) != 0) break;
    if (!visitor(id_of(at->key()),
                 std::as_bytes(std::span(at->value().data(), at->value().size()))))
      break;
  }
  database_->require(at->status(), "rows cannot be read from disk");
}

}  // namespace strata
