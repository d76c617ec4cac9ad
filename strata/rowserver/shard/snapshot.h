/// Writes the rows of a shard at a version to a file and reads them back, completely or not at all.
///
/// The file gets its name when it is durable. Checksums cover all of it, and the digest at its end
/// must match the rows that were read.
///
/// Source   format: docs/formats.md
/// Errors   UserError with the name of a file that is truncated, damaged, or of other features or
///          another shard; missing permission. SystemError: disk full.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/error_source.h"
#include "strata/rowserver/rows/shard_state.h"

namespace strata {

struct SnapshotHeader {
  std::uint64_t fingerprint = 0;
  std::int32_t shard = 0, shards = 1;
  std::int64_t version = 0;
  std::uint64_t run = 0;
};

/// The purpose of a snapshot: a trainer's checkpoint refers to it, or a log continues from it.
enum class SnapshotUse : std::uint8_t { kCheckpoint, kLogBase };

std::string snapshot_name(std::int64_t version, SnapshotUse use = SnapshotUse::kCheckpoint);

/// Versions of the snapshots in a folder, ascending. Only reading them shows whether they are
/// complete.
std::vector<std::int64_t> list_snapshots(const std::string& folder,
                                         SnapshotUse use = SnapshotUse::kCheckpoint);

struct SnapshotFile {
  std::int64_t version;
  std::string path;
};

/// Snapshots for both uses, ascending.
std::vector<SnapshotFile> all_snapshots(const std::string& folder);
/// The newest snapshot up to a version; null: none.
const SnapshotFile* newest_of(const std::vector<SnapshotFile>& ascending, std::int64_t at_most);

/// Errors   of a folder whose rows cannot be restored.
inline constexpr ErrorSource kRecoverErrors{"embed.recover"};

/// Returns the digest.
std::uint64_t write_snapshot(const std::string& folder, const SnapshotHeader& header,
                             ShardState& state, FileSystem& files = posix_file_system(),
                             SnapshotUse use = SnapshotUse::kCheckpoint);

SnapshotHeader read_snapshot_header(const std::string& path);

/// Puts the records for which `keep` is true into `state`. The caller calls finish() after the last
/// file, which sets the version.
SnapshotHeader read_snapshot(const std::string& path, ShardState& state,
                             const std::function<bool(const StateRecord&)>& keep = {});

/// Selects, from the records of any shards, those of shard `shard` and those of shards as a whole.
std::function<bool(const StateRecord&)> records_of(int shard, int shards);

}  // namespace strata
