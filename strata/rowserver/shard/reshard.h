/// Makes a shard of those of another number of shards: of the newest version that all their folders have.
///
/// Errors  UserError that names the folder: no version in common, another recipe's rows, a shard twice or missing.
#pragma once

#include <string>
#include <vector>

#include "strata/rowserver/shard/snapshot.h"

namespace strata {

/// Writes its snapshot into `folder`. `state`: new, takes its rows. `as`: the new one's; its version is not used.
void reshard(const std::vector<std::string>& from, ShardState& state, const std::string& folder,
             SnapshotHeader as, FileSystem& files);

}  // namespace strata
