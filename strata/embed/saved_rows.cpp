#include "strata/embed/saved_rows.h"

#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/error_source.h"
#include "strata/rowserver/shard/snapshot.h"
#include "strata/rowserver/shard/update_part.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr ErrorSource kLoadErrors{"embed.load"};

}  // namespace

SavedRows::SavedRows(std::string folder, std::uint64_t fingerprint, std::int64_t keep)
    : folder_(std::move(folder)), fingerprint_(fingerprint), keep_(keep) {}

std::string SavedRows::shard_folder(int shard) const {
  return folder_ + "/shard-" + std::to_string(shard);
}

// Keeps one more version until the next save, because the checkpoint of this version is not written
// yet.
void SavedRows::save(std::int64_t version, int shard, int shards, ShardState& state) const {
  const std::string folder = shard_folder(shard);
  make_folders_durably(folder, posix_file_system());
  write_snapshot(
      folder, {.fingerprint = fingerprint_, .shard = shard, .shards = shards, .version = version},
      state);
  if (keep_ == 0) return;
  std::vector<std::int64_t> versions = list_snapshots(folder);
  // Later versions belong to a run that ended before its checkpoint was complete.
  std::erase_if(versions, [&](std::int64_t other) { return other > version; });
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep_) + 1 < versions.size(); ++i) {
    std::error_code none;
    fs::remove(folder + "/" + snapshot_name(versions[i]), none);
  }
}

int SavedRows::shards_of(std::int64_t version) const {
  const std::string first = shard_folder(0) + "/" + snapshot_name(version);
  std::error_code none;
  if (!fs::exists(first, none))
    throw kLoadErrors.user(folder_, "the rows of this checkpoint are not there",
                           "snapshots of version " + std::to_string(version), "no " + first,
                           "resume from a checkpoint of a run that saved its rows next to it");
  return read_snapshot_header(first).shards;
}

void SavedRows::read(const std::string& path, std::int64_t version, int shard, int shards,
                     ShardState& state, const std::function<bool(const StateRecord&)>& keep) const {
  const SnapshotHeader header = read_snapshot(path, state, keep);
  if (header.fingerprint != fingerprint_ || header.shard != shard || header.shards != shards ||
      header.version != version)
    throw kLoadErrors.user(path, "the rows belong to another recipe or shard",
                           "shard " + std::to_string(shard) + " of " + std::to_string(shards) +
                               " of this recipe's features and seed",
                           "shard " + std::to_string(header.shard) + " of " +
                               std::to_string(header.shards) + ", version " +
                               std::to_string(header.version),
                           "resume with the features and the seed that trained them");
}

void SavedRows::load(std::int64_t version, int shard, int shards, ShardState& state) const {
  const int written = shards_of(version);
  // empty: all records, if the number of shards is the same
  std::function<bool(const StateRecord&)> mine;
  if (written != shards) mine = records_of(shard, shards);
  for (int other = 0; other < written; ++other) {
    if (written == shards && other != shard) continue;
    read(shard_folder(other) + "/" + snapshot_name(version), version, other, written, state, mine);
  }
  state.finish(version, written == shards);
}

void SavedRows::load_row(std::int64_t version, int feature, std::uint64_t id,
                         ShardState& state) const {
  const int written = shards_of(version), shard = shard_of(feature, id, written);
  read(shard_folder(shard) + "/" + snapshot_name(version), version, shard, written, state,
       [&](const StateRecord& record) {
         return record.kind < kOfShard && record.feature == feature && record.id == id;
       });
}

}  // namespace strata
