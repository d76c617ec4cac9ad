/// Applies the updates of all ranks to the rows of one shard, and answers every read at exactly the
/// version that it names: the gate between ranks that come as they like and rows that go from version
/// to version.
///
/// 1. A rank's requests come in order; it reads version v before it sends its part of update v + 1.
/// 2. Update v + 1 is applied when all parts are there: then all reads of version v are, too.
/// 3. What waits for version v is done between update v and update v + 1, by the thread whose part was
///    the last one. Nobody else touches the rows then.
///
/// Threads  any; each rank's calls come one after the other. Callbacks run in a thread that calls, and
///          must not call back.
/// Errors   UserError: what check_read() and check_part() refuse, a gap in a rank's updates, a version
///          that is gone. SystemError: a rank that others wait for has left. An error of the rows or
///          of the journal ends everything that waits, and every later call.
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

#include "strata/rowserver/shard/update_part.h"

namespace strata {

/// Keeps updates, so that rows can be made again from them.
class UpdateJournal {
 public:
  virtual ~UpdateJournal() = default;
  /// Before update `version` is applied; parts in rank order.
  virtual void append(std::int64_t version, const std::vector<UpdatePart>& parts) = 0;
  /// An update that it has: rows that start at an older version are brought up to it.
  virtual std::vector<UpdatePart> replay(std::int64_t version) = 0;
};

/// Of reads, by update number - version read: 1 is what sequential training has. The last one holds
/// all that are older.
using StalenessCounts = std::array<std::int64_t, 65>;

struct ShardCounts {
  std::int64_t version = 0;
  std::int64_t reads = 0, rows_read = 0;
  std::int64_t parts = 0, repeated_parts = 0;
  std::int64_t updates = 0, rows_updated = 0;
  std::vector<StalenessCounts> staleness;  ///< by feature
};

class ShardServer {
 public:
  struct Options {
    int shard = 0;
    int shards = 1;
    int ranks = 1;
    std::int64_t version = 0;   ///< of the rows as they are
    std::int64_t replayed = 0;  ///< the updates up to here come from the journal
    bool held = false;          ///< no update is applied before release()
  };
  using Answer = std::function<void(std::vector<FeatureRows>, std::exception_ptr)>;
  using Done = std::function<void(std::exception_ptr)>;

  ShardServer(RowStore& rows, Options options, UpdateJournal* journal = nullptr);
  ~ShardServer();
  ShardServer(const ShardServer&) = delete;
  ShardServer& operator=(const ShardServer&) = delete;

  void read(int rank, std::vector<FeatureRead> reads, Answer answer);

  /// Rows of an answer that is written: later reads use their memory. From a callback, too.
  void recycle(std::vector<FeatureRows> rows);

  /// False for a part that is there already, which is left out.
  bool update(int rank, std::int64_t version, UpdatePart part);

  /// Updates up to this version are in the journal now: those after the ones there are replayed.
  void replay_to(std::int64_t version);

  /// Calls at exactly this version of the rows.
  void at(std::int64_t version, Done done);

  /// Calls at this version or a later one.
  void when_reached(std::int64_t version, Done done);

  /// Calls at whatever version the rows have; no update goes on meanwhile.
  void inspect(Done done);

  /// The last part of a rank that is there.
  std::int64_t last_part(int rank) const;
  std::int64_t version() const;
  std::exception_ptr failure() const;  ///< what ended it; null while it goes on
  ShardCounts counts() const;

  /// The rank sends no more: who waits for it gets an error.
  void leave(int rank);
  void release();
  /// Everything that waits ends with this error, and whatever comes later.
  void fail(const std::exception_ptr& error);
  /// The same, and returns when nobody touches the rows any more; not from a callback.
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
  bool pumping_ = false;
  int reading_ = 0;  // threads that read this version on their own
  std::vector<std::int64_t> sent_;
  std::vector<char> left_;
  std::map<std::int64_t, std::vector<std::optional<UpdatePart>>> parts_;
  std::map<std::int64_t, std::vector<ReadTask>> reads_;
  std::multimap<std::int64_t, Done> exact_, reached_;
  std::vector<Done> inspections_;
  std::exception_ptr failure_;
  ShardCounts counts_;
  std::deque<std::vector<float>> spare_;  // of answers that are on their way
};

}  // namespace strata
