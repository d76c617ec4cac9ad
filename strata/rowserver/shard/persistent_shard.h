/// Keeps the rows of a shard so that they survive: as snapshots and the log of updates between them, from
/// which they are made again, of any version since the oldest snapshot, bit by bit.
///
/// Rows in memory (and cold ones on disk) are only a copy of what snapshot and log say. Opened again
/// after a crash, they start at the newest snapshot and are held: ranks that come back may still lack
/// answers of versions that the log has gone past, and get them while the log is replayed.
///
/// Threads  what changes runs or rewinds: one at a time, never from callbacks of the ShardServer; the
///          rest: any.
/// Errors   UserError: files of another recipe or shard, damaged ones, a version that is not there.
///          SystemError: disk full, a failing medium.
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
  WirePrecision gradients = WirePrecision::kFp32;  ///< of parts that did not come by wire
  SyncPolicy sync = {};
  /// Of those that checkpoints refer to. Two at least: that of the newest may not be written yet.
  int kept_snapshots = 2;
  /// The log may have so many bytes, or as many as the newest snapshot if these are more: beyond that the
  /// shard makes a snapshot by itself and drops what lies behind it. 0: no limit.
  std::int64_t log_limit = 0;
  /// Folders of the shards of another number of servers, whose newest common snapshot an empty folder
  /// starts with.
  std::vector<std::string> from = {};
  FileSystem* files = &posix_file_system();
};

/// Rows and the gate before them: replaced as a whole when a run begins or goes back.
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

  /// A run starts at version `begin`: rows become that version, and whatever came later is removed. At
  /// version 0 that is refused while there are saved rows, unless all of them are of `abandoned` runs. `run`: its
  /// number here (run_number.h), higher than that of the run before; of `abandoned` ones the names count.
  void begin_run(std::uint64_t run, std::int64_t begin,
                 const std::vector<std::uint64_t>& abandoned = {});
  /// Refuses a version that rows can neither go back to nor be read at.
  void require_reachable(std::int64_t version) const;
  /// Refuses what begin_run() would refuse; nothing changes.
  void require_beginnable(std::int64_t begin, const std::vector<std::uint64_t>& abandoned) const;

  /// Rows go back so far that reads of version `oldest` can be answered; they are held.
  void rewind(std::int64_t oldest);

  // Of a replica, which has its updates from another shard:

  /// The next one: a record of another log, and the message that it lies in.
  void take_update(const LogRecord& record, MessageBytes bytes);
  /// Updates after version `begin` are of this run; rows go back to it if they are further on. A
  /// UserError if folder and log don't reach back so far; then nothing is changed.
  void follow_run(LogRun run);
  /// Instead of all that is there, the snapshot in this file; "": the empty rows of version 0.
  void install(const std::string& path, std::int64_t version, LogRun run);

  struct Base {
    std::string path;  ///< "": the empty rows of version 0
    std::int64_t version = 0;
  };
  /// The newest snapshot.
  Base newest_base() const;
  /// Of the rows of a version, where a snapshot was made of them lately.
  std::optional<std::uint64_t> digest_at(std::int64_t version) const;

  /// Within ShardServer::at(version). A version that is saved already is left as it is.
  void save(std::int64_t version);
  bool saved(std::int64_t version) const;
  /// Snapshots and updates stay from which versions from `oldest()` on can be made.
  void keep_versions(std::function<std::int64_t()> oldest);

  void append(std::int64_t version, const std::vector<UpdatePart>& parts) override;
  std::vector<UpdatePart> replay(std::int64_t version) override;

  /// What opening found: for people.
  struct Recovery {
    std::int64_t snapshot = 0, head = 0;
    std::int64_t cut_bytes = 0;
    double seconds = 0;
  };
  const Recovery& recovery() const { return recovery_; }

  struct Compactions {
    std::int64_t made = 0, failed = 0;  ///< snapshots because of log_limit
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
  Taken taken_;  // the update that is applied next, unless it has to come from the log
  Compactions compactions_;
  std::atomic<std::int64_t> compact_at_ = 0;  // bytes of the log
};

}  // namespace strata
