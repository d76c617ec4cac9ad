/// Reads and writes one file of the log of updates: a header that says whose it is, then records without a gap.
///
/// A crash may leave the last record half written, and only that one: bytes are appended in order. So what
/// reaches beyond the end of the last file is cut off, and so is a tail of zeros, which a file system may
/// leave behind a power cut; every other misfit means that someone changed the file.
///
/// Source   format: docs/formats.md
/// Threads  one at a time a file.
/// Errors   UserError that names the file: damaged, or another shard's or recipe's. SystemError: disk full.
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
  std::uint64_t number = 0;  ///< 0: none yet
  std::int64_t begin = 0;    ///< the version it began at
};

struct LogPlace {
  std::string path;
  std::uint64_t begin = 0, end = 0;
};

struct LogFile {
  std::string path;
  std::int64_t first = 0;  ///< update
  LogRun run = {};
  std::vector<std::uint64_t> offsets = {};  ///< of records, from first on
  std::uint64_t end = 0;  ///< 0: without a header, so a process ended while it made it

  std::int64_t last() const { return first + static_cast<std::int64_t>(offsets.size()) - 1; }
  /// Where the record of an update lies.
  LogPlace place_of(std::int64_t version) const;
};

std::vector<std::byte> read_record(const LogPlace& place);

/// Whose files they are.
struct LogOwner {
  std::uint64_t fingerprint = 0;
  std::int32_t shard = 0, shards = 1;
};

/// Of all files of a folder, in order; nothing in them is read.
std::vector<LogFile> find_log_files(const std::string& folder);

/// Reads the header and where the records lie. `is_last`: what is torn at its end is cut off. Returns the bytes
/// that were.
std::int64_t read_log_file(LogFile& file, const LogOwner& owner, bool is_last, FileSystem& files);

/// What is behind `bytes` is gone, durably.
void truncate_durably(const std::string& path, std::uint64_t bytes, FileSystem& files);

/// Appends to a file that it makes.
class LogWriter {
 public:
  /// With its header, durable.
  LogWriter(const std::string& folder, std::int64_t first, LogRun run, const LogOwner& owner,
            FileSystem& files);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  const LogFile& empty_file() const { return file_; }  ///< as it is without records
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
