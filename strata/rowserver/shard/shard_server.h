/// Applies the updates of all ranks to the rows of one shard, and answers every read at exactly the
/// version that it names. Requests arrive in any order; rows advance one version at a time.
///
/// 1. A rank's requests arrive in order; it reads version v before it sends its part of update
///    v + 1.
/// 2. Update v + 1 is applied when all parts have arrived; by then all reads of version v have
///    arrived, too.
/// 3. Work that waits for version v runs between update v and update v + 1, in the thread whose
///    part arrived last and in those that help it. No other thread accesses the rows then.
///
/// Threads  any; each rank's calls are sequential. Callbacks run in a calling or helping thread,
///          and must not call this object.
/// Errors   UserError: what check_read() and check_part() reject, a gap in a rank's updates, a
///          version that no longer exists. SystemError: a rank that others wait for has left. An
///          error of the rows or of the journal ends everything that waits, and every later call.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "strata/base/helper_threads.h"
#include "strata/rowserver/shard/update_part.h"

namespace strata {

/// Stores updates, so that rows can be restored from them.
class UpdateJournal {
 public:
  virtual ~UpdateJournal() = default;
  /// Called before update `version` is applied; parts are in rank order.
  virtual void append(std::int64_t version, const std::vector<UpdatePart>& parts) = 0;
  /// Returns a stored update, with which rows of an older version catch up.
  virtual std::vector<UpdatePart> replay(std::int64_t version) = 0;
};

/// Number of reads by update number - version read: 1 in sequential training. The last entry counts
/// all older reads, too.
using StalenessCounts = std::array<std::int64_t, 65>;

struct ShardCounts {
  std::int64_t version = 0;
  std::int64_t reads = 0, rows_read = 0;
  std::int64_t parts = 0, repeated_parts = 0;
  std::int64_t updates = 0, rows_updated = 0;
  std::vector<StalenessCounts> staleness;  ///< per feature
};

class ShardServer {
 public:
  struct Options {
    int shard = 0;
    int shards = 1;
    int ranks = 1;
    std::int64_t version = 0;   ///< version of the rows at construction
    std::int64_t replayed = 0;  ///< updates up to this one are read from the journal
    bool held = false;          ///< no update is applied before release()
    /// threads that read and update features, the calling one included
    std::shared_ptr<HelperThreads> threads = nullptr;
  };
  using Answer = std::function<void(std::vector<FeatureRows>, std::exception_ptr)>;
  using Done = std::function<void(std::exception_ptr)>;

  ShardServer(RowStore& rows, Options options, UpdateJournal* journal = nullptr);
  ~ShardServer();
  ShardServer(const ShardServer&) = delete;
  ShardServer& operator=(const ShardServer&) = delete;

  void read(int rank, std::vector<FeatureRead> reads, Answer answer);

  /// Keeps the memory of values that were sent or applied for later reads. Callbacks may call it.
  void recycle(std::vector<FeatureRows> rows);

  /// Returns false for a part that was received before, which is ignored.
  bool update(int rank, std::int64_t version, UpdatePart part);

  /// The journal now has the updates up to this version: those that are not applied yet are
  /// replayed.
  void replay_to(std::int64_t version);

  /// Calls `done` at exactly this version of the rows.
  void at(std::int64_t version, Done done);

  /// Calls `done` at this version or a later one.
  void when_reached(std::int64_t version, Done done);

  /// Calls `done` at the current version of the rows; no update runs meanwhile.
  void inspect(Done done);

  /// Returns the last part that was received from a rank.
  std::int64_t last_part(int rank) const;
  std::int64_t version() const;
  std::exception_ptr failure() const;  ///< the error that ended it; null: none
  ShardCounts counts() const;

  /// The rank sends no more: requests that wait for it get an error.
  void leave(int rank);
  void release();
  /// Ends everything that waits, and all later calls, with this error.
  void fail(const std::exception_ptr& error);
  /// The same, and returns when no thread accesses the rows any more; not from a callback.
  void stop(const std::exception_ptr& error);

 private:
  struct ReadRequest;
  struct ReadTask {
    std::shared_ptr<ReadRequest> request;
    std::size_t index;
  };
  using Lock = std::unique_lock<std::mutex>;

  void require_running() const;
  std::vector<float> take_spare(std::size_t size);
  void perform(const std::vector<ReadTask>& tasks);
  void pump(Lock& lock);
  bool do_what_waits(Lock& lock);
  bool next_is_there() const;
  void apply_next(Lock& lock);
  void note_part(std::int64_t version, const UpdatePart& part);
  void drop_beyond(Lock& lock, std::int64_t version, const std::exception_ptr& error);
  std::exception_ptr left_error(std::int64_t version) const;

  RowStore& rows_;
  const Options options_;
  UpdateJournal* const journal_;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::int64_t version_;
  std::int64_t replayed_;
  bool held_;
  const std::shared_ptr<HelperThreads> threads_;
  bool pumping_ = false;
  int reading_ = 0;  // threads that read this version outside the mutex
  std::vector<std::int64_t> sent_;
  std::vector<char> left_;
  std::map<std::int64_t, std::vector<std::optional<UpdatePart>>> parts_;
  std::map<std::int64_t, std::vector<ReadTask>> reads_;
  std::multimap<std::int64_t, Done> exact_, reached_;
  std::vector<Done> inspections_;
  std::exception_ptr failure_;
  ShardCounts counts_;
  std::deque<std::vector<float>> spare_;  // memory of sent responses
};

}  // namespace strata
