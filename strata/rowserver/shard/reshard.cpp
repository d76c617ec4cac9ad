#include "strata/rowserver/shard/reshard.h"

#include <algorithm>
#include <utility>

namespace strata {

// Every old shard contributes the records whose ids belong to the new shard.
void reshard(const std::vector<std::string>& from, ShardState& state, const std::string& folder,
             SnapshotHeader as, FileSystem& files) {
  std::vector<std::int64_t> common = list_snapshots(from.front());
  for (const std::string& other : from)
    std::erase_if(common, [&](std::int64_t version) {
      const std::vector<std::int64_t> there = list_snapshots(other);
      return !std::binary_search(there.begin(), there.end(), version);
    });
  if (common.empty())
    throw kRecoverErrors.user(from.front(), "no version is saved in all folders",
                              "one snapshot in common", "none",
                              "save with the servers that keep their rows there");
  as.version = common.back();
  const auto mine = records_of(as.shard, as.shards);
  std::vector<char> seen(from.size(), 0);
  for (const std::string& other : from) {
    const SnapshotHeader header =
        read_snapshot(other + "/" + snapshot_name(as.version), state, mine);
    if (header.fingerprint != as.fingerprint)
      throw kRecoverErrors.user(other, "its rows belong to another recipe",
                                "fingerprint " + std::to_string(as.fingerprint),
                                "fingerprint " + std::to_string(header.fingerprint),
                                "name folders of this recipe");
    if (header.shards != static_cast<int>(from.size()) || header.shard < 0 ||
        header.shard >= header.shards ||
        std::exchange(seen[static_cast<std::size_t>(header.shard)], 1))
      throw kRecoverErrors.user(other, "these are not the folders of all shards",
                                "shard 0 to " + std::to_string(header.shards - 1) + ", each once",
                                "shard " + std::to_string(header.shard),
                                "name the folder of each server once");
  }
  state.finish(as.version, false);
  write_snapshot(folder, as, state, files);
}

}  // namespace strata
