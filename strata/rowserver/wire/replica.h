/// Follows a server of rows, its primary: applies every update of the primary a little later, and
/// compares digests.
///
/// A replica resumes from its own folder. If the folder is of another run, or the primary's log
/// does not reach back to it, the replica reverts updates or loads a new snapshot. For each version
/// of which the primary has made a snapshot it compares digests; it counts a mismatch and loads a
/// new snapshot.
///
/// Source   log shipping: Gray and Reuter, "Transaction Processing", chapter 12
/// Threads  start(), stop(): one; the rest: any.
/// Errors   failure(): UserError: what the primary refuses, certificates; SystemError: disk full.
///          The replica waits for a primary that is away.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "strata/base/executor.h"
#include "strata/rowserver/shard/persistent_shard.h"
#include "strata/rowserver/wire/frame_stream.h"
#include "strata/rowserver/wire/update_stream.h"

namespace strata {

struct ReplicaCounts {
  bool following = false;      ///< there is a stream
  bool caught_up = false;      ///< it has been as far as the primary
  bool primary_trains = true;  ///< somebody trains on the primary, for all that it has said
  std::int64_t primary_version = 0;
  std::int64_t connections = 0, snapshots = 0;
  std::int64_t equal_digests = 0, different_digests = 0;
};

/// Refuses updates and names the server that takes them.
UserError replica_takes_no_updates(const std::string& primary);

class Replica {
 public:
  using Follow = std::function<std::unique_ptr<FrameStream>(const FollowRequest& request)>;

  /// `caught_up`: called once, when the replica first has the primary's version.
  Replica(PersistentShard& shard, Follow follow, std::function<void()> caught_up = {});
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  void start();  ///< once
  void stop();   ///< returns when it has ended

  ReplicaCounts counts() const;
  std::exception_ptr failure() const;  ///< what ended it; null: nothing

 private:
  struct Download;

  void follow_until_stopped();
  void follow_once();
  StreamFrame decode(std::shared_ptr<const WireFrame> bytes, std::int64_t expected);
  void take_update(const MessageBytes& bytes);
  void take(const StreamFrame& frame, std::unique_ptr<Download>& download);
  void compare(std::int64_t version, std::uint64_t digest);
  void note_primary(std::int64_t version, bool trains);
  void look_whether_caught_up();
  bool pause(std::int64_t milliseconds);

  PersistentShard& shard_;
  const Follow follow_;
  const std::function<void()> call_;
  bool restarts_ = false;  // what is there is of no use
  int unreadable_ = 0;     // streams one after the other whose first frame was none
  int damaged_ = 0;        // records of the next update, one after the other
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool reported_ = false;  // how far the primary is
  FrameStream* stream_ = nullptr;
  ReplicaCounts counts_;
  Completion following_;
  Executor executor_{{.name = "replica"}};
};

}  // namespace strata
