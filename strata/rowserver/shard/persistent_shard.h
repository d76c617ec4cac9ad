/// Stores the rows of a shard durably, as snapshots and the log of updates between them. Any
/// version since the oldest snapshot can be restored from them, bit by bit.
///
/// Rows in memory (and cold rows on disk) are a copy of what snapshots and log hold. A shard that
/// is opened after a crash starts at the newest snapshot and holds its rows: ranks that reconnect
/// may still need responses of versions that the log has passed, and get them while the log is
/// replayed.
///
/// Threads  changes of the run and rewind(): one at a time, never from callbacks of the
///          ShardServer; the rest: any.
/// Errors   UserError: files of another recipe or shard, damaged files, a version that does not
///          exist. SystemError: disk full, a failing disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "strata/base/folder_lock.h"
#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/rows/shard_state.h"
#include "strata/rowserver/shard/log_record.h"
#include "strata/rowserver/shard/shard_server.h"
#include "strata/rowserver/shard/snapshot.h"
#include "strata/rowserver/shard/update_log.h"

namespace strata {

struct PersistentShardOptions {
  std::string folder;
  std::vector<FeatureSpec> features;
  std::uint64_t seed = 1;
  int shard = 0, shards = 1, ranks = 1;
  /// of parts that were not received from the network
  WirePrecision gradients = WirePrecision::kFp32;
  SyncPolicy sync = {};
  /// Number of snapshots for checkpoints to keep. At least two, because the newest checkpoint may
  /// be incomplete.
  int kept_snapshots = 2;
  /// Largest size of the log in bytes, or the size of the newest snapshot if that is larger. Beyond
  /// it the shard writes a snapshot and drops the log before it. 0: no limit.
  std::int64_t log_limit = 0;
  /// Folders of the shards of another number of servers. An empty folder starts with their newest
  /// common snapshot.
  std::vector<std::string> from = {};
  FileSystem* files = &posix_file_system();
};

/// Rows and the ShardServer for them; both are replaced when a run begins or goes back.
struct LiveShard {
  std::unique_ptr<ShardState> state;
  std::unique_ptr<ShardServer> server;
};

class PersistentShard : public UpdateJournal {
 public:
  PersistentShard(PersistentShardOptions options, MakeShardState make);
  ~PersistentShard() override;

  const PersistentShardOptions& options() const { return options_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  UpdateLog& log() { return *log_; }
  std::shared_ptr<LiveShard> live() const;

  /// Starts a run at version `begin`: the rows become that version, and later versions are removed.
  /// Version 0 is refused while saved rows exist, unless all of them belong to `abandoned` runs.
  /// `run`: its number in this folder (run_number.h), higher than that of the previous run.
  /// `abandoned` runs are compared by name.
  void begin_run(std::uint64_t run, std::int64_t begin,
                 const std::vector<std::uint64_t>& abandoned = {});
  /// Throws UserError for a version that the rows cannot go back to or be read at.
  void require_reachable(std::int64_t version) const;
  /// Throws where begin_run() would; changes nothing.
  void require_beginnable(std::int64_t begin, const std::vector<std::uint64_t>& abandoned) const;

  /// Restores rows old enough to answer reads of version `oldest`, and holds them.
  void rewind(std::int64_t oldest);

  // For a replica, which receives its updates from another shard:

  /// Applies the next update: a record of another log, and the message that contains it.
  void take_update(const LogRecord& record, MessageBytes bytes);
  /// Later updates than `begin` belong to this run; the rows go back to `begin` if they are newer.
  /// Throws a UserError, and changes nothing, if folder and log do not reach back that far.
  void follow_run(LogRun run);
  /// Replaces everything with the snapshot in this file; "": the empty rows of version 0.
  void install(const std::string& path, std::int64_t version, LogRun run);

  struct Base {
    std::string path;  ///< "": the empty rows of version 0
    std::int64_t version = 0;
  };
  /// The newest snapshot.
  Base newest_base() const;
  /// The digest of a version's rows, if a snapshot of it was written recently.
  std::optional<std::uint64_t> digest_at(std::int64_t version) const;

  /// Call within ShardServer::at(version). Does nothing if that version is already saved.
  void save(std::int64_t version);
  bool saved(std::int64_t version) const;
  /// Keeps the snapshots and updates from which versions since `oldest()` can be restored.
  void keep_versions(std::function<std::int64_t()> oldest);

  void append(std::int64_t version, const std::vector<UpdatePart>& parts) override;
  std::vector<UpdatePart> replay(std::int64_t version) override;

  /// What opening the folder recovered, for people to read.
  struct Recovery {
    std::int64_t snapshot = 0, head = 0;
    std::int64_t cut_bytes = 0;
    double seconds = 0;
  };
  const Recovery& recovery() const { return recovery_; }

  struct Compactions {
    std::int64_t made = 0, failed = 0;  ///< snapshots that log_limit caused
  };
  Compactions compactions() const;

 private:
  std::unique_ptr<ShardState> load(std::int64_t at_most, std::int64_t& version);
  void replace(std::int64_t at_most, bool held);
  void remove_old();
  bool reachable(std::int64_t version) const;
  void go_to(LogRun run);
  void between_updates(const std::function<void()>& change);
  void write(std::int64_t version, SnapshotUse use);
  void limit_log();
  void compact();
  std::int64_t log_limit() const;

  const PersistentShardOptions options_;
  const MakeShardState make_;
  const std::uint64_t fingerprint_;
  FolderLock lock_;
  std::unique_ptr<UpdateLog> log_;
  Recovery recovery_;
  mutable std::mutex mutex_;
  std::shared_ptr<LiveShard> live_;
  std::function<std::int64_t()> oldest_;
  std::map<std::int64_t, std::uint64_t> digests_;  // of the last snapshots
  struct Taken {
    std::int64_t version = -1;
    std::vector<std::span<const std::byte>> parts = {};
    MessageBytes bytes = {};
  };
  Taken taken_;  // the update that is applied next, unless it is read from the log
  Compactions compactions_;
  std::atomic<std::int64_t> compact_at_ = 0;  // size of the log in bytes
};

}  // namespace strata
