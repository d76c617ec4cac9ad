/// Reads and writes one file of the update log: a header with the shard and the recipe, then
/// consecutive records.
///
/// A crash can leave only the last record incomplete, because bytes are appended in order. Opening
/// the last file therefore truncates an incomplete last record, and trailing zeros, which a file
/// system may leave after a power failure. Any other error means that the file was changed by
/// something else.
///
/// Why not RocksDB, which is linked for cold rows: a column family with the version as its key
/// gives the same guarantees, but makes an update of 1 MiB durable in 3.6 ms instead of 1.4 ms (8
/// MiB: 26 instead of 13 ms), streams updates of 64 KiB and more at 0.26 to 0.44 times the rate,
/// and writes 1.5 to 2.0 bytes per byte (bench/update_log/README.md).
///
/// Source   format: docs/formats.md
/// Threads  one at a time per file.
/// Errors   UserError with the name of a file that is damaged, or belongs to another shard or
///          recipe. SystemError: disk full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/random_access_file.h"

namespace strata {

struct LogRun {
  std::uint64_t number = 0;  ///< 0: no run yet
  std::int64_t begin = 0;    ///< the version at which it began
};

struct LogPlace {
  std::string path;
  std::uint64_t begin = 0, end = 0;
};

struct LogFile {
  std::string path;
  std::int64_t first = 0;  ///< first update
  LogRun run = {};
  std::vector<std::uint64_t> offsets = {};  ///< of records, in the order of their updates
  std::uint64_t end = 0;  ///< 0: no header, because the process ended while it created the file

  std::int64_t last() const { return first + static_cast<std::int64_t>(offsets.size()) - 1; }
  /// Returns the place of an update's record.
  LogPlace place_of(std::int64_t version) const;
};

std::vector<std::byte> read_record(const LogPlace& place);

/// The shard and the recipe that a file belongs to.
struct LogOwner {
  std::uint64_t fingerprint = 0;
  std::int32_t shard = 0, shards = 1;
};

/// Lists the files of a folder, in order, without reading them.
std::vector<LogFile> find_log_files(const std::string& folder);

/// Reads the header and the places of the records. `is_last`: truncates an incomplete end. Returns
/// the number of truncated bytes.
std::int64_t read_log_file(LogFile& file, const LogOwner& owner, bool is_last, FileSystem& files);

/// Truncates the file to `bytes`; returns when that is durable.
void truncate_durably(const std::string& path, std::uint64_t bytes, FileSystem& files);

/// Creates a file and appends to it.
class LogWriter {
 public:
  /// Returns when the file and its header are durable.
  LogWriter(const std::string& folder, std::int64_t first, LogRun run, const LogOwner& owner,
            FileSystem& files);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  const LogFile& empty_file() const { return file_; }  ///< its state before the first record
  void write(std::span<const std::span<const std::byte>> pieces, std::size_t size);
  void sync();  ///< from any thread

 private:
  void write(std::span<const std::byte> bytes);
  [[noreturn]] void refuse(const std::string& what) const;

  FileSystem& files_;
  LogFile file_;
  int descriptor_;
};

/// The kind of file, for errors of the log as a whole.
extern const FileUse kLogFileUse;

}  // namespace strata
