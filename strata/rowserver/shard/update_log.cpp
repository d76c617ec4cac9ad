// A file starts with the run that its updates belong to, so each run starts a new file.
#include "strata/rowserver/shard/update_log.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "strata/base/errors.h"
#include "strata/rowserver/shard/log_record.h"

namespace strata {

UpdateLog::UpdateLog(UpdateLogOptions options, std::int64_t version)
    : options_(std::move(options)), syncs_({.name = "log sync"}) {
  make_folders_durably(options_.folder, *options_.files);
  read_all();
  if (head_ < version)
    for (; !files_.empty(); files_.pop_back()) remove_folder(files_.back().path, *options_.files);
  if (files_.empty()) head_ = version;
  if (first() > version + 1)
    kLogFileUse.refuse(options_.folder, "log and snapshots don't fit together",
                       "updates up to version " + std::to_string(version) + " at least",
                       "updates " + std::to_string(first()) + " to " + std::to_string(head_));
  durable_ = head_;
}

UpdateLog::~UpdateLog() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

void UpdateLog::read_all() {
  for (LogFile& file : find_log_files(options_.folder)) files_.push_back(std::move(file));
  for (LogFile& file : files_) {
    if (&file != &files_.front() && file.first != head_ + 1)
      kLogFileUse.refuse(file.path, "updates are missing before this file",
                         "update " + std::to_string(head_ + 1) + " first",
                         "update " + std::to_string(file.first));
    cut_bytes_ = read_log_file(file, options_.owner, &file == &files_.back(), *options_.files);
    if (file.end > 0) run_ = file.run;
    head_ = file.last();
  }
  // The process ended while it created this file, which has no update.
  if (!files_.empty() && files_.back().end == 0) {
    remove_folder(files_.back().path, *options_.files);
    files_.pop_back();
  }
}

void UpdateLog::require_running() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::int64_t UpdateLog::first() const {
  const std::lock_guard lock(mutex_);
  return files_.empty() ? head_ + 1 : files_.front().first;
}
std::int64_t UpdateLog::head() const {
  const std::lock_guard lock(mutex_);
  return head_;
}
std::int64_t UpdateLog::durable() const {
  const std::lock_guard lock(mutex_);
  return durable_;
}
LogRun UpdateLog::run() const {
  const std::lock_guard lock(mutex_);
  return run_;
}
LogRun UpdateLog::run_of(std::int64_t version) const {
  const std::lock_guard lock(mutex_);
  if (version > head_ || files_.empty() || version < files_.front().first) return run_;
  return file_of(version).run;
}

// All runs since then are known if the files reach back to one that is not later: a file is removed
// for a run that begins before it, or from the old end of the log.
std::int64_t UpdateLog::shared_with(std::uint64_t run, std::int64_t version) const {
  const std::lock_guard lock(mutex_);
  if (run > run_.number) return -1;
  if (run == run_.number) return version <= durable_ ? version : -1;
  if (version == 0) return 0;
  if (run == 0 || files_.empty() || files_.front().run.number > run) return -1;
  std::int64_t shared = std::min({version, durable_, run_.begin});
  for (const LogFile& file : files_)
    if (file.run.number > run) shared = std::min(shared, file.run.begin);
  return shared;
}

std::int64_t UpdateLog::cut_bytes() const { return cut_bytes_; }
std::int64_t UpdateLog::bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const LogFile& file : files_) bytes += file.end;
  return static_cast<std::int64_t>(bytes);
}

void UpdateLog::append(std::int64_t version, const std::vector<std::span<const std::byte>>& parts) {
  const LogRecordPieces record(version, parts);
  write_record(version, record.pieces(), record.size());
}

void UpdateLog::append_record(std::int64_t version, std::span<const std::byte> record) {
  write_record(version, {&record, 1}, record.size());
}

void UpdateLog::write_record(std::int64_t version,
                             std::span<const std::span<const std::byte>> pieces, std::size_t size) {
  {
    const std::lock_guard lock(mutex_);
    require_running();
    STRATA_CHECK_EQ(version, head_ + 1, "embed.log");
  }
  if (!open_) begin_file();
  try {
    open_->write(pieces, size);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    throw;
  }
  const std::lock_guard lock(mutex_);
  files_.back().offsets.push_back(files_.back().end);
  files_.back().end += size;
  head_ = version;
  changed_.notify_all();
  if (!std::exchange(sync_submitted_, true)) syncs_.submit([this] { sync_next(); });
}

const LogFile& UpdateLog::file_of(std::int64_t version) const {
  const auto after =
      std::upper_bound(files_.begin(), files_.end(), version,
                       [](std::int64_t v, const LogFile& file) { return v < file.first; });
  if (after == files_.begin() || version > head_)
    throw UserError({.operation = "embed.log",
                     .where = options_.folder,
                     .what = "an update is not in the log",
                     .expected = "updates up to " + std::to_string(head_),
                     .got = "update " + std::to_string(version),
                     .fix = "restore the folder from a copy, or resume at a later checkpoint"});
  return *(after - 1);
}

UpdateLog::Bytes UpdateLog::record(std::int64_t version) const {
  LogPlace place;
  {
    const std::lock_guard lock(mutex_);
    place = file_of(version).place_of(version);
  }
  return read_record(place);
}

std::int64_t UpdateLog::changes() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

void UpdateLog::wait_durable(std::int64_t version) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || durable_ >= version || stopped_; });
  require_running();
}

void UpdateLog::wait_durable_for(std::int64_t version, std::int64_t milliseconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(milliseconds),
                    [&] { return failure_ || durable_ >= version || stopped_; });
  require_running();
}

bool UpdateLog::healthy() const {
  const std::lock_guard lock(mutex_);
  return !failure_;
}

void UpdateLog::on_durable(std::function<void(std::int64_t, std::exception_ptr)> call) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !calling_; });
  call_ = std::move(call);
}

// The first update that is not durable submits a sync, which waits for more updates as the policy
// says.
void UpdateLog::sync_next() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(options_.sync.milliseconds),
                    [&] { return stopped_ || head_ - durable_ >= options_.sync.updates; });
  sync_submitted_ = false;
  if (durable_ >= head_ || failure_) return;
  const std::int64_t target = head_;
  const std::shared_ptr<LogWriter> file = open_;
  lock.unlock();
  std::exception_ptr error;
  try {
    if (file) file->sync();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) failure_ = error;
  // Updates that were removed and written again meanwhile are in another file.
  if (!error && file == open_) durable_ = std::max(durable_, std::min(target, head_));
  const auto call = call_;
  const std::int64_t durable = durable_;
  calling_ = true;
  changed_.notify_all();
  lock.unlock();
  if (call) call(durable, error);
  lock.lock();
  calling_ = false;
  changed_.notify_all();
}

// Runs before another file becomes the open one, because the executor syncs only the open file.
void UpdateLog::sync_open() {
  if (!open_) return;
  open_->sync();
  const std::lock_guard lock(mutex_);
  durable_ = head_;
}

void UpdateLog::begin_file() {
  sync_open();
  // An open file without records needs no new file.
  if (!open_ || !files_.back().offsets.empty()) begin_run(run(), head());
}

// In one step under the mutex: a follower must not read removed updates as future ones, nor take
// the run of a removed file for the run of the next update.
void UpdateLog::cut_for_run(LogRun run, std::int64_t version) {
  const std::lock_guard lock(mutex_);
  run_ = run;
  ++changes_;
  cut_after(version);
}

void UpdateLog::restart(LogRun run, std::int64_t version) {
  cut_for_run(run, -1);
  {
    const std::lock_guard lock(mutex_);
    head_ = durable_ = version;
  }
  begin_run(run, version);
}

void UpdateLog::begin_run(LogRun run, std::int64_t version) {
  if (version == head()) sync_open();
  cut_for_run(run, version);
  auto file = std::make_shared<LogWriter>(options_.folder, version + 1, run, options_.owner,
                                          *options_.files);
  const std::lock_guard lock(mutex_);
  if (!files_.empty() && files_.back().path == file->empty_file().path) files_.pop_back();
  files_.push_back(file->empty_file());
  open_ = std::move(file);
}

// Removes the newest file first: if the process ends at any point, the remaining updates have no
// gap.
void UpdateLog::cut_after(std::int64_t version) {
  require_running();
  if (version >= head_) return;
  open_.reset();
  while (!files_.empty() && files_.back().first > version) {
    remove_folder(files_.back().path, *options_.files);
    sync_folder(options_.folder, *options_.files);
    files_.pop_back();
  }
  if (!files_.empty()) {
    LogFile& file = files_.back();
    const auto kept = static_cast<std::size_t>(version + 1 - file.first);
    if (kept < file.offsets.size()) {
      file.end = file.offsets[kept];
      file.offsets.resize(kept);
      truncate_durably(file.path, file.end, *options_.files);
    }
  }
  head_ = version;
  durable_ = version;
}

void UpdateLog::remove_up_to(std::int64_t version) {
  const std::lock_guard lock(mutex_);
  ++changes_;
  while (files_.size() > 1 && files_[1].first <= version + 1) {
    remove_folder(files_.front().path, *options_.files);
    files_.pop_front();
  }
  sync_folder(options_.folder, *options_.files);
}

}  // namespace strata
