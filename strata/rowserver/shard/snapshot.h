/// Writes the rows of a shard at a version as a file, and reads them back: whole or not at all.
///
/// The file appears under its name when it is durable. Everything in it is under a checksum, and the
/// digest at its end has to be that of the rows that were read.
///
/// Source   format: docs/formats.md
/// Errors   UserError that names the file: cut off, damaged, of other features or another shard; no
///          permission. SystemError: disk full.
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

/// What a snapshot is for: a checkpoint of a trainer refers to it, or a log goes on from it.
enum class SnapshotUse : std::uint8_t { kCheckpoint, kLogBase };

std::string snapshot_name(std::int64_t version, SnapshotUse use = SnapshotUse::kCheckpoint);

/// Versions of the snapshots in a folder, ascending; whether they are whole is seen by reading.
std::vector<std::int64_t> list_snapshots(const std::string& folder,
                                         SnapshotUse use = SnapshotUse::kCheckpoint);

struct SnapshotFile {
  std::int64_t version;
  std::string path;
};

/// Of both uses, ascending.
std::vector<SnapshotFile> all_snapshots(const std::string& folder);
/// The newest one of at most a version; null if there is none.
const SnapshotFile* newest_of(const std::vector<SnapshotFile>& ascending, std::int64_t at_most);

/// Errors of a folder whose rows cannot be had.
inline constexpr ErrorSource kRecoverErrors{"embed.recover"};

/// Returns the digest.
std::uint64_t write_snapshot(const std::string& folder, const SnapshotHeader& header,
                             ShardState& state, FileSystem& files = posix_file_system(),
                             SnapshotUse use = SnapshotUse::kCheckpoint);

SnapshotHeader read_snapshot_header(const std::string& path);

/// Puts the records that `keep` wants into `state`, which takes the snapshot's version when finish()
/// is called by whoever has read all files.
SnapshotHeader read_snapshot(const std::string& path, ShardState& state,
                             const std::function<bool(const StateRecord&)>& keep = {});

/// Of the records of any shards, those that this one of so many has, and what is of shards as wholes.
std::function<bool(const StateRecord&)> records_of(int shard, int shards);

}  // namespace strata
