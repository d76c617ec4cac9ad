/// Builds a shard from the shards of another number of servers, at the newest version that all
/// their folders have.
///
/// Errors   UserError with the folder: no common version, another recipe's rows, a duplicate or
///          missing shard.
#pragma once

#include <string>
#include <vector>

#include "strata/rowserver/shard/snapshot.h"

namespace strata {

/// Writes the new shard's snapshot into `folder`. `state`: empty, receives the rows. `as`: the
/// header of the new shard; its version is not used.
void reshard(const std::vector<std::string>& from, ShardState& state, const std::string& folder,
             SnapshotHeader as, FileSystem& files);

}  // namespace strata
