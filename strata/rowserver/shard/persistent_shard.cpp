// The order of a save: first the updates up to the version become durable, then the snapshot, then
// the log starts a new file, then files older than the oldest kept snapshot are removed. If the
// process ends at any point, the newest snapshot and the log after it are complete.
//
// The order of going back: first snapshots of later versions are removed, then the log's newest
// files. If the log does not reach back that far, the oldest snapshot that the log continues stays
// until the log is removed, so the folder can be opened if the process ends at any point.
//
// A log beyond its limit is replaced by a snapshot between two updates, by the thread that applies
// them. Updates wait for it as for a checkpoint, because only that thread has the rows at one
// version.
#include "strata/rowserver/shard/persistent_shard.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <utility>

#include "strata/base/errors.h"
#include "strata/rowserver/shard/reshard.h"
#include "strata/rowserver/shard/run_number.h"

namespace strata {
namespace {

std::int64_t newest_snapshot(const std::string& folder) {
  const std::vector<SnapshotFile> all = all_snapshots(folder);
  return all.empty() ? 0 : all.back().version;
}

std::exception_ptr replaced_error() {
  return to_exception(SystemError({.operation = "embed.run",
                                   .what = "the rows went to another run or version",
                                   .fix = "ranks of this run end"}));
}

}  // namespace

PersistentShard::PersistentShard(PersistentShardOptions options, MakeShardState make)
    : options_(std::move(options)),
      make_(std::move(make)),
      fingerprint_(fingerprint_of(options_.features, options_.seed)),
      lock_(options_.folder,
            {.operation = "embed.lock",
             .in_use = "another server keeps its rows here",
             .unwritable = "rows cannot be kept in this folder",
             .fix = "give each server a folder of its own"},
            *options_.files) {
  const auto began = std::chrono::steady_clock::now();
  if (!options_.from.empty() && list_snapshots(options_.folder).empty()) {
    const std::unique_ptr<ShardState> state = make_();
    reshard(options_.from, *state, options_.folder,
            {.fingerprint = fingerprint_, .shard = options_.shard, .shards = options_.shards},
            *options_.files);
  }
  log_ = std::make_unique<UpdateLog>(UpdateLogOptions{.folder = options_.folder,
                                                      .owner = {.fingerprint = fingerprint_,
                                                                .shard = options_.shard,
                                                                .shards = options_.shards},
                                                      .sync = options_.sync,
                                                      .files = options_.files},
                                     newest_snapshot(options_.folder));
  replace(log_->head(), true);
  recovery_.snapshot = live_->server->version();
  recovery_.head = log_->head();
  recovery_.cut_bytes = log_->cut_bytes();
  recovery_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

PersistentShard::~PersistentShard() {
  if (live_) live_->server->stop(replaced_error());
}

std::shared_ptr<LiveShard> PersistentShard::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

// Loads the rows of the newest snapshot up to a version, or none.
std::unique_ptr<ShardState> PersistentShard::load(std::int64_t at_most, std::int64_t& version) {
  const std::vector<SnapshotFile> snapshots = all_snapshots(options_.folder);
  const SnapshotFile* const newest = newest_of(snapshots, at_most);
  std::unique_ptr<ShardState> state = make_();
  version = 0;
  if (newest == nullptr) return state;
  version = newest->version;
  const std::string& path = newest->path;
  const SnapshotHeader header = read_snapshot_header(path);
  if (header.fingerprint != fingerprint_ || header.shard != options_.shard ||
      header.shards != options_.shards || header.version != version)
    throw kRecoverErrors.user(
        path, "the snapshot belongs to another recipe or shard",
        "shard " + std::to_string(options_.shard) + " of " + std::to_string(options_.shards),
        "shard " + std::to_string(header.shard) + " of " + std::to_string(header.shards) +
            ", version " + std::to_string(header.version),
        "start the server as before, or in an empty folder with --from this one");
  read_snapshot(path, *state);
  state->finish(version, true);
  return state;
}

void PersistentShard::replace(std::int64_t at_most, bool held) {
  const std::shared_ptr<LiveShard> before = live();
  if (before) before->server->stop(replaced_error());
  auto fresh = std::make_shared<LiveShard>();
  std::int64_t version = 0;
  // The cold rows of the old state use the same folder.
  if (before) before->state.reset();
  fresh->state = load(at_most, version);
  if (version < at_most && log_->first() > version + 1)
    throw kRecoverErrors.user(options_.folder, "rows of a version are not there",
                              "a snapshot of version " + std::to_string(at_most) +
                                  " or updates from " + std::to_string(version + 1) + " on",
                              "updates from " + std::to_string(log_->first()) + " on",
                              "resume at a later checkpoint, or keep more snapshots");
  compact_at_ = log_limit();
  taken_ = {};
  fresh->server = std::make_unique<ShardServer>(fresh->state->rows(),
                                                ShardServer::Options{.shard = options_.shard,
                                                                     .shards = options_.shards,
                                                                     .ranks = options_.ranks,
                                                                     .version = version,
                                                                     .replayed = log_->head(),
                                                                     .held = held},
                                                this);
  const std::lock_guard lock(mutex_);
  live_ = std::move(fresh);
}

void PersistentShard::require_beginnable(std::int64_t begin,
                                         const std::vector<std::uint64_t>& abandoned) const {
  for (const std::int64_t version : list_snapshots(options_.folder)) {
    if (begin > 0 || version == 0) continue;
    const std::string path = options_.folder + "/" + snapshot_name(version);
    const RunName owner = name_of_run(read_snapshot_header(path).run);
    const bool known = std::ranges::find(abandoned, owner, name_of_run) != abandoned.end();
    if (known && owner != 0) continue;
    throw kRecoverErrors.user(
        options_.folder, "the folder holds the saved rows of another run",
        "a run that resumes from them, or a folder without snapshots",
        "a run that begins anew, and rows of version " + std::to_string(version),
        "pass --resume to strata train, or give the server an empty folder");
  }
  require_reachable(begin);
}

void PersistentShard::begin_run(std::uint64_t run, std::int64_t begin,
                                const std::vector<std::uint64_t>& abandoned) {
  require_beginnable(begin, abandoned);
  go_to({.number = run, .begin = begin});
}

// In an empty log first() is the number of the next update, so the check holds for it, too.
bool PersistentShard::reachable(std::int64_t version) const {
  const std::vector<SnapshotFile> snapshots = all_snapshots(options_.folder);
  const SnapshotFile* const before = newest_of(snapshots, version);
  const std::int64_t from = before ? before->version : 0;
  return from == version || (log_->first() <= from + 1 && version <= log_->head());
}

void PersistentShard::require_reachable(std::int64_t version) const {
  if (reachable(version)) return;
  std::string there;
  for (const SnapshotFile& snapshot : all_snapshots(options_.folder))
    there += std::to_string(snapshot.version) + ", ";
  throw kRecoverErrors.user(options_.folder, "rows of a version are not there",
                            "version " + there + std::to_string(log_->first() - 1) + " to " +
                                std::to_string(log_->head()),
                            "version " + std::to_string(version),
                            "resume at a checkpoint of those steps");
}

void PersistentShard::go_to(LogRun run) {
  const std::int64_t begin = run.begin;
  require_reachable(begin);
  live()->server->stop(replaced_error());
  {
    // The new run's rows of those versions will differ.
    const std::lock_guard lock(mutex_);
    digests_.erase(digests_.upper_bound(begin), digests_.end());
  }
  std::vector<SnapshotFile> later = all_snapshots(options_.folder);
  std::erase_if(later, [&](const SnapshotFile& snapshot) { return snapshot.version <= begin; });
  const auto remove_beyond = [&](std::int64_t version) {
    for (; !later.empty() && later.back().version > version; later.pop_back())
      remove_folder(later.back().path, *options_.files);
    sync_folder(options_.folder, *options_.files);
  };
  std::int64_t openable = begin;
  if (log_->first() > begin + 1)
    for (const SnapshotFile& snapshot : later)
      if (openable == begin && log_->first() <= snapshot.version + 1) openable = snapshot.version;
  remove_beyond(openable);
  log_->cut_for_run(run, begin);
  remove_beyond(begin);
  log_->begin_run(run, begin);
  replace(begin, false);
  live()->server->release();
}

// Runs a change of the log in parallel with neither an update nor a snapshot, which inspection of
// the shard may write.
void PersistentShard::between_updates(const std::function<void()>& change) {
  const auto done = std::make_shared<std::promise<void>>();
  live()->server->inspect([&, done](const std::exception_ptr& error) {
    try {
      if (error) std::rethrow_exception(error);
      change();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  done->get_future().get();
}

void PersistentShard::take_update(const LogRecord& record, MessageBytes bytes) {
  between_updates([&] {
    log_->append_record(record.version, bytes.bytes);
    taken_ = {.version = record.version, .parts = record.parts, .bytes = std::move(bytes)};
    limit_log();
  });
  live()->server->replay_to(record.version);
}

void PersistentShard::follow_run(LogRun run) {
  if (run.begin == log_->head())
    between_updates([&] { log_->begin_run(run, run.begin); });
  else
    go_to(run);
}

void PersistentShard::install(const std::string& path, std::int64_t version, LogRun run) {
  live()->server->stop(replaced_error());
  {
    const std::lock_guard lock(mutex_);
    digests_.clear();
  }
  log_->cut_for_run(run, -1);
  for (const SnapshotFile& snapshot : all_snapshots(options_.folder))
    remove_folder(snapshot.path, *options_.files);
  if (!path.empty())
    rename_durably(path, options_.folder + "/" + snapshot_name(version, SnapshotUse::kLogBase),
                   *options_.files);
  log_->restart(run, version);
  replace(version, false);
}

PersistentShard::Base PersistentShard::newest_base() const {
  const std::vector<SnapshotFile> all = all_snapshots(options_.folder);
  if (all.empty()) return {};
  return {.path = all.back().path, .version = all.back().version};
}

std::optional<std::uint64_t> PersistentShard::digest_at(std::int64_t version) const {
  const std::lock_guard lock(mutex_);
  const auto found = digests_.find(version);
  if (found == digests_.end()) return std::nullopt;
  return found->second;
}

PersistentShard::Compactions PersistentShard::compactions() const {
  const std::lock_guard lock(mutex_);
  return compactions_;
}

void PersistentShard::rewind(std::int64_t oldest) {
  if (live()->server->version() <= oldest) return;
  replace(std::min(oldest, log_->head()), true);
}

bool PersistentShard::saved(std::int64_t version) const {
  const std::vector<std::int64_t> versions = list_snapshots(options_.folder);
  return std::binary_search(versions.begin(), versions.end(), version);
}

void PersistentShard::save(std::int64_t version) {
  if (saved(version)) return;
  write(version, SnapshotUse::kCheckpoint);
}

void PersistentShard::write(std::int64_t version, SnapshotUse use) {
  log_->wait_durable(version);
  const SnapshotHeader header{.fingerprint = fingerprint_,
                              .shard = options_.shard,
                              .shards = options_.shards,
                              .version = version,
                              .run = log_->run().number};
  const std::uint64_t digest =
      write_snapshot(options_.folder, header, *live()->state, *options_.files, use);
  {
    const std::lock_guard lock(mutex_);
    digests_[version] = digest;
    if (digests_.size() > 8) digests_.erase(digests_.begin());
  }
  if (log_->head() == version) log_->begin_file();
  remove_old();
}

std::int64_t PersistentShard::log_limit() const {
  const Base base = newest_base();
  std::error_code none;
  const auto bytes = base.path.empty()
                         ? 0
                         : static_cast<std::int64_t>(std::filesystem::file_size(base.path, none));
  return none ? options_.log_limit : std::max(options_.log_limit, bytes);
}

// Called by the thread that appends an update before that is applied; the snapshot is written after
// it.
void PersistentShard::limit_log() {
  if (options_.log_limit == 0 || log_->bytes() <= compact_at_) return;
  compact_at_ = INT64_MAX;
  live()->server->when_reached(log_->head(), [this](const std::exception_ptr& error) {
    if (error)
      compact_at_ = log_limit();
    else
      compact();
  });
}

// A failed snapshot does not end training, because the log is complete. It is retried when the log
// has grown further.
void PersistentShard::compact() {
  const std::int64_t version = live()->server->version();
  bool made = true;
  try {
    if (newest_snapshot(options_.folder) < version) write(version, SnapshotUse::kLogBase);
  } catch (const Error&) {
    made = false;
  }
  const std::int64_t limit = log_limit();
  compact_at_ = std::max(limit, log_->bytes() + limit / 4);
  const std::lock_guard lock(mutex_);
  ++(made ? compactions_.made : compactions_.failed);
}

void PersistentShard::keep_versions(std::function<std::int64_t()> oldest) {
  const std::lock_guard lock(mutex_);
  oldest_ = std::move(oldest);
}

// The empty rows of version 0 count as a snapshot while the log reaches back to them. The part of
// the log that recovery does not need serves runs that go back further than a checkpoint, and
// replicas. Beyond the limit it is removed; then checkpoints of that time need no log.
void PersistentShard::remove_old() {
  std::function<std::int64_t()> oldest;
  {
    const std::lock_guard lock(mutex_);
    oldest = oldest_;
  }
  const std::int64_t needed = oldest ? oldest() : INT64_MAX;
  const std::vector<SnapshotFile> all = all_snapshots(options_.folder);
  const SnapshotFile* const newest = newest_of(all, needed);
  const std::int64_t start = newest ? newest->version : 0;  // where recovery starts
  for (const std::int64_t version : list_snapshots(options_.folder, SnapshotUse::kLogBase))
    if (version < start)
      remove_folder(options_.folder + "/" + snapshot_name(version, SnapshotUse::kLogBase),
                    *options_.files);
  std::vector<std::int64_t> kept = list_snapshots(options_.folder);
  while (static_cast<int>(kept.size()) > options_.kept_snapshots && kept.front() < start) {
    remove_folder(options_.folder + "/" + snapshot_name(kept.front()), *options_.files);
    kept.erase(kept.begin());
  }
  if (static_cast<int>(kept.size()) >= options_.kept_snapshots)
    log_->remove_up_to(std::min(kept.front(), start));
  if (options_.log_limit > 0 && log_->bytes() > log_limit()) log_->remove_up_to(start);
}

void PersistentShard::append(std::int64_t version, const std::vector<UpdatePart>& parts) {
  std::vector<std::vector<std::byte>> encoded;
  encoded.reserve(parts.size());
  std::vector<std::span<const std::byte>> wires;
  for (const UpdatePart& part : parts) {
    const bool came = !part.wire.bytes.empty();
    if (!came) encoded.push_back(encode_part(version, part, options_.features, options_.gradients));
    wires.push_back(came ? part.wire.bytes : std::span<const std::byte>(encoded.back()));
  }
  log_->append(version, wires);
  limit_log();
}

std::vector<UpdatePart> PersistentShard::replay(std::int64_t version) {
  std::vector<UpdatePart> parts;
  Taken update = std::exchange(taken_, {});
  UpdateLog::Bytes record;
  if (update.version != version) {
    record = log_->record(version);
    update.parts = parse_log_record(record).parts;
  }
  for (const std::span<const std::byte> bytes : update.parts) {
    parts.push_back(decode_part(bytes, version, options_.features));
    check_part(options_.features, version, parts.back(), options_.shard, options_.shards);
  }
  if (static_cast<int>(parts.size()) == 0)
    throw kRecoverErrors.user(options_.folder, "an update has no parts", "one of each rank", "none",
                              "restore the log from a copy");
  return parts;
}

}  // namespace strata
