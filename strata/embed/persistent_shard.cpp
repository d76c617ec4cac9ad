// The order of a save: updates up to the version are durable, then the snapshot is, then the log starts
// a new file, then what lies behind the oldest kept snapshot goes. Whenever the process ends in between,
// the newest snapshot and the log behind it are whole.
//
// The order of going back: snapshots of later versions go first, then the log's newest files.
#include "strata/embed/persistent_shard.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "strata/base/errors.h"
#include "strata/embed/snapshot.h"
#include "strata/embed/wire_messages.h"

namespace strata {
namespace {

[[noreturn]] void refuse_folder(const std::string& folder, const std::string& what,
                                const std::string& expected, const std::string& got,
                                const std::string& fix) {
  throw UserError({.operation = "embed.recover",
                   .where = folder,
                   .what = what,
                   .expected = expected,
                   .got = got,
                   .fix = fix});
}

std::int64_t newest_snapshot(const std::string& folder) {
  const std::vector<std::int64_t> versions = list_snapshots(folder);
  return versions.empty() ? 0 : versions.back();
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
             .taken = "another server keeps its rows here",
             .unwritable = "rows cannot be kept in this folder",
             .fix = "give each server a folder of its own"},
            *options_.files) {
  const auto began = std::chrono::steady_clock::now();
  if (!options_.from.empty()) load_from_others();
  log_ = std::make_unique<UpdateLog>(UpdateLogOptions{.folder = options_.folder,
                                                      .fingerprint = fingerprint_,
                                                      .shard = options_.shard,
                                                      .shards = options_.shards,
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

// Rows of the newest snapshot up to a version, or none.
std::unique_ptr<ShardState> PersistentShard::load(std::int64_t at_most, std::int64_t& version) {
  const std::vector<std::int64_t> versions = list_snapshots(options_.folder);
  const auto after = std::upper_bound(versions.begin(), versions.end(), at_most);
  std::unique_ptr<ShardState> state = make_();
  version = 0;
  if (after == versions.begin()) return state;
  version = *(after - 1);
  const std::string path = options_.folder + "/" + snapshot_name(version);
  const SnapshotHeader header = read_snapshot_header(path);
  if (header.fingerprint != fingerprint_ || header.shard != options_.shard ||
      header.shards != options_.shards || header.version != version)
    refuse_folder(
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
  // Cold rows of the old state would be in the way.
  if (before) before->state.reset();
  fresh->state = load(at_most, version);
  if (version < at_most && log_->first() > version + 1)
    refuse_folder(options_.folder, "rows of a version are not there",
                  "a snapshot of version " + std::to_string(at_most) + " or updates from " +
                      std::to_string(version + 1) + " on",
                  "updates from " + std::to_string(log_->first()) + " on",
                  "resume at a later checkpoint, or keep more snapshots");
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

void PersistentShard::begin_run(std::uint64_t run, std::int64_t begin) {
  const std::vector<std::int64_t> versions = list_snapshots(options_.folder);
  if (begin == 0 && !versions.empty() && versions.back() > 0)
    refuse_folder(
        options_.folder, "the folder holds the saved rows of another run",
        "a run that goes on from them, or a folder without snapshots",
        "a run that begins anew, and snapshots up to version " + std::to_string(versions.back()),
        "pass --resume to strata train, or give the server an empty folder");
  live()->server->stop(replaced_error());
  const bool whole_log = log_->first() == 1;
  const bool snapshot_before = !versions.empty() && versions.front() <= begin;
  const bool there =
      begin == 0 ||
      (snapshot_before && std::binary_search(versions.begin(), versions.end(), begin)) ||
      (begin <= log_->head() && (snapshot_before || whole_log));
  if (!there)
    refuse_folder(options_.folder, "rows of a version are not there",
                  versions.empty() && !whole_log
                      ? "version 0"
                      : "version " + std::to_string(whole_log ? 0 : versions.front()) + " to " +
                            std::to_string(log_->head()),
                  "version " + std::to_string(begin), "resume at a checkpoint of those steps");
  for (const std::int64_t version : versions)
    if (version > begin)
      remove_folder(options_.folder + "/" + snapshot_name(version), *options_.files);
  sync_folder(options_.folder, *options_.files);
  log_->begin_run({.number = run, .begin = begin}, begin);
  replace(begin, false);
  live()->server->release();
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
  log_->wait_durable(version);
  const SnapshotHeader header{.fingerprint = fingerprint_,
                              .shard = options_.shard,
                              .shards = options_.shards,
                              .version = version,
                              .run = log_->run().number};
  write_snapshot(options_.folder, header, *live()->state, *options_.files);
  if (log_->head() == version) log_->begin_file();
  remove_old();
}

void PersistentShard::keep_versions(std::function<std::int64_t()> oldest) {
  const std::lock_guard lock(mutex_);
  oldest_ = std::move(oldest);
}

// The empty rows of version 0 count as a snapshot as long as the log goes back to them.
void PersistentShard::remove_old() {
  std::function<std::int64_t()> oldest;
  {
    const std::lock_guard lock(mutex_);
    oldest = oldest_;
  }
  const std::int64_t needed = oldest ? oldest() : INT64_MAX;
  std::vector<std::int64_t> versions = list_snapshots(options_.folder);
  while (static_cast<int>(versions.size()) > options_.kept_snapshots && versions[1] <= needed) {
    remove_folder(options_.folder + "/" + snapshot_name(versions.front()), *options_.files);
    versions.erase(versions.begin());
  }
  if (static_cast<int>(versions.size()) >= options_.kept_snapshots && versions.front() <= needed)
    log_->remove_up_to(versions.front());
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
}

std::vector<UpdatePart> PersistentShard::replay(std::int64_t version) {
  std::vector<UpdatePart> parts;
  for (const std::vector<std::byte>& bytes : log_->parts(version)) {
    parts.push_back(decode_part(bytes, version, options_.features));
    check_part(options_.features, version, parts.back(), options_.shard, options_.shards);
  }
  if (static_cast<int>(parts.size()) == 0)
    refuse_folder(options_.folder, "an update has no parts", "one of each rank", "none",
                  "restore the log from a copy");
  return parts;
}

// The newest version that all of them have; each gives the records whose ids are this shard's.
void PersistentShard::load_from_others() {
  if (!list_snapshots(options_.folder).empty()) return;  // it has rows of its own by now
  std::vector<std::int64_t> common = list_snapshots(options_.from.front());
  for (const std::string& folder : options_.from)
    std::erase_if(common, [&](std::int64_t version) {
      const std::vector<std::int64_t> there = list_snapshots(folder);
      return !std::binary_search(there.begin(), there.end(), version);
    });
  if (common.empty())
    refuse_folder(options_.from.front(), "no version is saved in all folders",
                  "one snapshot in common", "none",
                  "save with the servers that keep their rows there");
  const std::unique_ptr<ShardState> state = make_();
  const int shards = options_.shards;
  const auto mine = records_of(options_.shard, shards);
  std::vector<char> seen(options_.from.size(), 0);
  for (const std::string& folder : options_.from) {
    const SnapshotHeader header =
        read_snapshot(folder + "/" + snapshot_name(common.back()), *state, mine);
    if (header.fingerprint != fingerprint_)
      refuse_folder(folder, "its rows belong to another recipe", "", "",
                    "name folders of this recipe");
    if (header.shards != static_cast<int>(options_.from.size()) || header.shard < 0 ||
        header.shard >= header.shards ||
        std::exchange(seen[static_cast<std::size_t>(header.shard)], 1))
      refuse_folder(folder, "these are not the folders of all shards",
                    "shard 0 to " + std::to_string(header.shards - 1) + ", each once",
                    "shard " + std::to_string(header.shard), "name the folder of each server once");
  }
  state->finish(common.back(), false);
  write_snapshot(options_.folder,
                 {.fingerprint = fingerprint_,
                  .shard = options_.shard,
                  .shards = shards,
                  .version = common.back(),
                  .run = 0},
                 *state, *options_.files);
}

}  // namespace strata
