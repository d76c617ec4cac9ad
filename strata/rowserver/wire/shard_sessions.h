/// Serves ranks whose connections break: answers every request once and applies every part of an
/// update once, however often they arrive.
///
/// A rank opens a stream with a Hello and then sends, in order, requests without an answer and
/// updates that are not durable yet. (rank, version) identifies a part, (rank, number) a request;
/// the server keeps an answer until the rank confirms it. After a restart, streams wait until all
/// ranks have reconnected: the oldest version that one of them still reads is where the replay of
/// the log starts.
///
/// A run begins after the previous run has ended (run_lease.h), and only if the server's last run
/// is the one whose number the Hello names. A rank that arrives late therefore cannot take the rows
/// from a newer run.
///
/// Threads  serve(): one for each stream; the rest: any.
/// Errors   one error answers a Hello of another version, recipe, shard, run or number of ranks; it
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

  /// The number of the last run, which the next run follows. Throws a UserError that names the
  /// process of a run that continues.
  std::uint64_t run_to_follow();

  /// Ends all streams without answering waiting requests: ranks reconnect to the next server.
  void stop();
  /// Replays the log to its end if no rank has reconnected yet, for callers that only read.
  void catch_up();
  SessionCounts counts() const;

 private:
  struct Rank {
    std::shared_ptr<Outbox> outbox;  // of the stream that it has
    // Requests without an answer, or with an answer that the rank has not confirmed.
    struct Kept {
      std::int64_t version = 0;  // the oldest that it names
      std::shared_ptr<const MessageBody> answer = nullptr;
      std::weak_ptr<Outbox> requested_by = {};  // of the last stream that it came on
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
