/// Keeps every update of a shard in files that only grow: with a snapshot they are the rows of any later
/// version, bit by bit.
///
/// Updates have numbers without a gap. Files begin a new one at every snapshot, so that what lies
/// behind the oldest snapshot goes by removing whole files. append() returns when the system has the
/// bytes, which outlive the process; an executor makes them durable.
///
/// Source   write-ahead logging
/// Threads  append() and what changes files: one at a time; the rest: any.
/// Errors   UserError that names the file: log_file.h, or a gap between files. A log that ends before the newest
///          snapshot is what going back left half done: it is removed. SystemError: disk full, which ends the log.
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

/// When updates are made durable: at once, or when so many wait or the first has waited so long.
struct SyncPolicy {
  std::int64_t updates = 1;
  std::int64_t milliseconds = 100;  ///< at most
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

  /// Reads what is there. `version`: of the newest snapshot, which the log begins behind if it is empty.
  UpdateLog(UpdateLogOptions options, std::int64_t version);
  ~UpdateLog();
  UpdateLog(const UpdateLog&) = delete;
  UpdateLog& operator=(const UpdateLog&) = delete;

  std::int64_t first() const;  ///< update that is there; head() + 1 if none is
  std::int64_t head() const;
  std::int64_t durable() const;
  LogRun run() const;
  /// Of an update that is there, or of the next one.
  LogRun run_of(std::int64_t version) const;
  /// Up to which version someone who has the first `version` updates of run `run` has the same ones as
  /// this log, durably: a later run may have begun before them. -1: that cannot be known any more.
  std::int64_t shared_with(std::uint64_t run, std::int64_t version) const;
  std::int64_t bytes() const;      ///< of the records there
  std::int64_t cut_bytes() const;  ///< of a record that was half written when it was opened

  /// The parts of update head() + 1, in rank order.
  void append(std::int64_t version, const std::vector<std::span<const std::byte>>& parts);
  /// The same, as a record of another log that parse_log_record() has checked.
  void append_record(std::int64_t version, std::span<const std::byte> record);

  /// The record of an update as it lies in the file (log_record.h).
  Bytes record(std::int64_t version) const;
  /// Changes of the files that may take away what somebody reads; their number grows before a file is
  /// touched, and whoever asks for it waits until that is over.
  std::int64_t changes() const;

  /// Returns when that update is durable. Throws what went wrong.
  void wait_durable(std::int64_t version);
  /// The same for at most so long.
  void wait_durable_for(std::int64_t version, std::int64_t milliseconds);
  bool healthy() const;  ///< nothing went wrong
  /// Called from the executor; an error once, as the last call. The one before is not called
  /// any more when this returns; not from within it.
  void on_durable(std::function<void(std::int64_t, std::exception_ptr)> call);

  /// Updates after `version` never were; the next one is version + 1, of run `run`.
  void begin_run(LogRun run, std::int64_t version);
  /// Only the first half of begin_run().
  void cut_for_run(LogRun run, std::int64_t version);
  /// There are no updates, and the next one is version + 1, of run `run`.
  void restart(LogRun run, std::int64_t version);
  /// Later updates go to a new file.
  void begin_file();
  /// Removes files whose updates are all up to `version`.
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
  bool sync_submitted_ = false;  // and it will find the updates of now
  std::exception_ptr failure_;
  std::function<void(std::int64_t, std::exception_ptr)> call_;
  Executor syncs_;  // last: its tasks use what is above
};

}  // namespace strata
