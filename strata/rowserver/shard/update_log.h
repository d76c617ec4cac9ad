/// Stores every update of a shard in append-only files: with a snapshot they restore the rows of
/// any later version, bit by bit.
///
/// Updates are numbered consecutively. Each snapshot starts a new file, so updates before the
/// oldest snapshot are dropped by removing whole files. append() returns when the operating system
/// has the bytes, which then outlive the process; an executor makes them durable.
///
/// Source   write-ahead logging
/// Threads  append() and what changes files: one at a time; the rest: any.
/// Errors   UserError with the name of a file: see log_file.h, or a gap between files. A log that
///          ends before the newest snapshot is left by an interrupted rewind: it is removed.
///          SystemError: disk full, which ends the log.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/executor.h"
#include "strata/rowserver/shard/log_file.h"

namespace strata {

inline constexpr std::int64_t kDefaultLogLimit = std::int64_t{4} << 30;  ///< bytes

/// When updates are made durable: at once, or when `updates` of them wait or the first has waited
/// `milliseconds`.
struct SyncPolicy {
  std::int64_t updates = 1;
  std::int64_t milliseconds = 100;  ///< upper bound of the wait
};

struct UpdateLogOptions {
  std::string folder;
  LogOwner owner = {};
  SyncPolicy sync = {};
  FileSystem* files = &posix_file_system();
};

class UpdateLog {
 public:
  using Bytes = std::vector<std::byte>;

  /// Reads the files. `version`: that of the newest snapshot; an empty log starts after it.
  UpdateLog(UpdateLogOptions options, std::int64_t version);
  ~UpdateLog();
  UpdateLog(const UpdateLog&) = delete;
  UpdateLog& operator=(const UpdateLog&) = delete;

  std::int64_t first() const;  ///< first stored update; head() + 1 if there is none
  std::int64_t head() const;
  std::int64_t durable() const;
  LogRun run() const;
  /// The run of a stored update, or of the next one.
  LogRun run_of(std::int64_t version) const;
  /// Returns the last version that this log durably shares with another process that has the first
  /// `version` updates of run `run`; a later run may have begun before them. -1: unknown.
  std::int64_t shared_with(std::uint64_t run, std::int64_t version) const;
  std::int64_t bytes() const;      ///< of the stored records
  std::int64_t cut_bytes() const;  ///< of an incomplete record that opening removed

  /// Appends update head() + 1; its parts are in rank order.
  void append(std::int64_t version, const std::vector<std::span<const std::byte>>& parts);
  /// The same with a record of another log that parse_log_record() has checked.
  void append_record(std::int64_t version, std::span<const std::byte> record);

  /// Returns the record of an update as stored in the file (log_record.h).
  Bytes record(std::int64_t version) const;
  /// Number of changes that may remove records that another thread reads. It grows before a file is
  /// changed, and a caller waits until a change in progress has ended.
  std::int64_t changes() const;

  /// Returns when that update is durable. Throws the error of the log.
  void wait_durable(std::int64_t version);
  /// The same, for at most `milliseconds`.
  void wait_durable_for(std::int64_t version, std::int64_t milliseconds);
  bool healthy() const;  ///< no error so far
  /// Sets the function that the executor calls with each durable version; an error is its last
  /// call. When this returns, the previous function is not called any more. Not from within the
  /// function.
  void on_durable(std::function<void(std::int64_t, std::exception_ptr)> call);

  /// Removes updates after `version`; the next one is version + 1, of run `run`.
  void begin_run(LogRun run, std::int64_t version);
  /// Only the first half of begin_run().
  void cut_for_run(LogRun run, std::int64_t version);
  /// Removes all updates; the next one is version + 1, of run `run`.
  void restart(LogRun run, std::int64_t version);
  /// Starts a new file for later updates.
  void begin_file();
  /// Removes the files whose updates are all up to `version`.
  void remove_up_to(std::int64_t version);

 private:
  void write_record(std::int64_t version, std::span<const std::span<const std::byte>> pieces,
                    std::size_t size);
  void sync_open();
  void read_all();
  void require_running() const;
  void cut_after(std::int64_t version);  // under the mutex
  void sync_next();
  const LogFile& file_of(std::int64_t version) const;

  const UpdateLogOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LogFile> files_;
  std::shared_ptr<LogWriter> open_;
  LogRun run_;
  std::int64_t head_ = 0, durable_ = 0, cut_bytes_ = 0;
  std::int64_t changes_ = 0;
  bool stopped_ = false, calling_ = false;
  bool sync_submitted_ = false;  // and it will include the current updates
  std::exception_ptr failure_;
  std::function<void(std::int64_t, std::exception_ptr)> call_;
  Executor syncs_;  // last: its tasks use the members above
};

}  // namespace strata
