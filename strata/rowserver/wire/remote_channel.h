/// Keeps one rank connected to one server: after every loss it sends again, in order, requests
/// without an answer and updates that are not durable.
///
/// Threads  one rank's calls; answers come from a thread of the channel.
/// Errors   whatever the server refuses; SystemError: no answer until the deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "strata/rowserver/wire/frame_stream.h"
#include "strata/rowserver/wire/server_wait.h"
#include "strata/rowserver/wire/shard_channel.h"
#include "strata/rowserver/wire/wire_messages.h"

namespace strata {

struct RemoteChannelOptions {
  ServerWaitOptions wait;  ///< for the server, without a connection
  std::vector<FeatureSpec> features;
  Hello hello;                               ///< of this rank; the channel adds its requests
  std::chrono::milliseconds silence{5'000};  ///< of a connection, before it counts as lost
  /// A rank that sends nothing else for so long sends a heartbeat (run_lease.h).
  std::chrono::milliseconds alive_every{1'000};
  /// Limit of updates that are not durable yet; the next one waits, unless it is the only one.
  std::int64_t credit_bytes = std::int64_t{64} << 20;
};

struct ChannelCounts {
  std::int64_t sent_bytes = 0, received_bytes = 0, connections = 0;
};

class RemoteChannel : public ShardChannel {
 public:
  RemoteChannel(RemoteChannelOptions options, ConnectStream connect);
  ~RemoteChannel() override;
  RemoteChannel(const RemoteChannel&) = delete;
  RemoteChannel& operator=(const RemoteChannel&) = delete;

  void read(std::vector<FeatureRead> reads, Answer answer) override;
  void update(std::int64_t version, UpdatePart part) override;
  void when_reached(std::int64_t version, Done done) override;
  void save(std::int64_t version, Done done) override;
  ChannelCounts counts() const;

  /// Ends the channel with an error unless it is connected, because the run is to stop.
  void stop_waiting();

 private:
  using Clock = std::chrono::steady_clock;
  // Something that was sent, or will be, and is not settled.
  struct Entry {
    MessageBody body;
    bool part = false;
    std::int64_t version = 0;  // a part's; the oldest one that a request names
    std::uint64_t id = 0;
    std::shared_ptr<std::vector<FeatureRead>> reads;  // whose ids the answer gets
    Answer answer;
  };
  using Lock = std::unique_lock<std::mutex>;
  class Current;

  void ask(MessageKind kind, Request request, std::int64_t oldest, Answer answer);
  void work();
  bool converse(FrameStream& stream);
  void send_all(FrameStream& stream, Lock& lock);
  void receive_all(FrameStream& stream);
  void take(const WireMessage& message);
  void settle(const WireMessage& message);
  void take_status(const Status& status);
  void fail(const std::exception_ptr& error);
  WireFrame hello_frame() const;

  const RemoteChannelOptions options_;
  const ConnectStream connect_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Entry> entries_;           // by order of sending
  std::map<std::uint64_t, std::uint64_t> order_of_;  // a request's, by its id
  std::uint64_t next_order_ = 0, next_id_ = 1, next_send_ = 0;
  std::int64_t part_bytes_ = 0;
  std::int64_t durable_;
  bool welcomed_ = false, broken_ = false, stopped_ = false;
  FrameStream* stream_ = nullptr;             // that it has, or is about to have
  std::int64_t sent_ = 0, sent_at_mark_ = 0;  // messages of this stream
  Clock::time_point heard_, marked_;
  ServerWait wait_;  // of the thread that connects
  std::exception_ptr failure_;
  ChannelCounts counts_;
  std::thread working_;
};

}  // namespace strata
