/// Serves ranks whose connections break: every request is answered and every part of an update applied
/// once, however often they come.
///
/// A rank opens a stream with a Hello and sends, in their order, what it has no answer to and what is
/// not durable yet. Parts are known by (rank, version), requests by (rank, number); answers are kept
/// until the rank says that it has them. After a restart, streams wait until all ranks are there: the
/// oldest version that one of them still reads says where replaying the log has to start.
///
/// A run begins where the run before it is over (run_lease.h), and only upon the one that the server had when it
/// was started: the Hello names that one's number. So a rank that comes late takes the rows from no later run.
///
/// Threads  serve(): one for each stream; the rest: any.
/// Errors   a Hello of another format, recipe, shard, run or number of ranks is answered by one error, and
///          changes nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "strata/rowserver/shard/persistent_shard.h"
#include "strata/rowserver/wire/frame_stream.h"
#include "strata/rowserver/wire/outbox.h"
#include "strata/rowserver/wire/run_lease.h"
#include "strata/rowserver/wire/wire_messages.h"

namespace strata {

struct SessionCounts {
  std::int64_t received_bytes = 0, sent_bytes = 0;
  std::int64_t received_messages = 0, sent_messages = 0;
  std::int64_t streams = 0;            ///< that a rank opened
  std::int64_t repeated_requests = 0;  ///< that came again after a stream broke
  std::int64_t connected_ranks = 0;
};

class ShardSessions {
 public:
  explicit ShardSessions(PersistentShard& shard, LeaseTimes times = {});
  ~ShardSessions();

  /// Returns when the stream has ended.
  void serve(FrameStream& stream);

  /// The number of the run that the rows are of, once that run is over: the next one follows it. Throws a UserError
  /// that names the run's process when it is heard of before.
  std::uint64_t run_to_follow();

  /// Ends all streams without an answer to what waits: ranks come back to the next server.
  void stop();
  /// Brings rows up to the end of the log, where no rank has come back yet: for who only looks.
  void catch_up();
  SessionCounts counts() const;

 private:
  struct Rank {
    std::shared_ptr<Outbox> outbox;  // of the stream that it has
    // Without an answer, or with one that the rank may not have yet.
    struct Kept {
      std::int64_t version = 0;  // the oldest that it names
      std::shared_ptr<const MessageBody> answer = nullptr;
      std::weak_ptr<Outbox> asked_by = {};  // of the last stream that it came on
    };
    std::map<std::uint64_t, Kept> requests;
    WireOptions wire;
    bool joined = false;
    std::int64_t resent_left = 0, oldest = -1;
  };
  using Lock = std::unique_lock<std::mutex>;

  void check(const Hello& hello) const;
  bool is_stream_of(int rank, const std::shared_ptr<Outbox>& outbox) const;
  void end_stream(int rank, bool left);
  Welcome join(const Hello& hello, const std::shared_ptr<Outbox>& outbox, FrameStream& stream);
  void register_rank(const Hello& hello, const std::shared_ptr<Outbox>& outbox);
  void require_fitting(const Hello& hello, bool begins) const;
  void begin_run(const Hello& hello);
  std::int64_t oldest_request() const;
  bool all_joined() const;
  std::int64_t oldest_read() const;
  void wait_for_others(const Hello& hello, const std::shared_ptr<Outbox>& outbox,
                       FrameStream& stream);
  void release_if_all_came(Lock& lock);
  bool handle(const WireMessage& message, const std::shared_ptr<const WireFrame>& frame, int rank,
              const std::shared_ptr<Outbox>& outbox);
  void handle_request(const WireMessage& message, int rank, const std::shared_ptr<Outbox>& outbox);
  void perform(MessageKind kind, Request request, int rank, const std::shared_ptr<Rank>& state);
  void answer(const std::shared_ptr<Rank>& state, std::uint64_t id, MessageBody body);
  void tell_durable(std::int64_t durable, const std::exception_ptr& error);

  PersistentShard& shard_;
  std::mutex join_mutex_;  // before the other: one rank joins after the other
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t run_;  // its number here
  std::int64_t begin_;
  RunLease lease_;
  bool rejoining_;       // after a restart, until all that was lost is there again
  bool chosen_ = false;  // rejoining, and the version to start at is known
  bool stopped_ = false;
  std::vector<std::shared_ptr<Rank>> ranks_;
  SessionCounts counts_;
};

}  // namespace strata
