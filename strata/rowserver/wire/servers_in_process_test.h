// Servers of rows in the test's own process, over streams that are queues, and ranks that train
// with them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/rowserver/shard/map_shard_test.h"
#include "strata/rowserver/wire/faulty_stream_test.h"
#include "strata/rowserver/wire/remote_channel.h"
#include "strata/rowserver/wire/shard_sessions.h"

namespace strata {

inline std::string text_of_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

inline void seal_for_test(WireFrame& frame) {
  const std::uint64_t sum = checksum(frame);
  for (int i = 0; i < 8; ++i) frame.push_back(static_cast<std::byte>(sum >> (8 * i)));
}

// Servers of some shards in this process, any of which may be ended and started again.
class Servers {
 public:
  Servers(std::string folder, int shards, int ranks, int faults, LeaseTimes times = {})
      : folder_(std::move(folder)),
        shards_(shards),
        ranks_(ranks),
        faults_(faults),
        times_(times),
        running_(static_cast<std::size_t>(shards)) {
    for (int shard = 0; shard < shards; ++shard) start(shard);
  }
  ~Servers() {
    for (int shard = 0; shard < shards_; ++shard) end(shard);
  }
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;

  void start(int shard) {
    PersistentShardOptions options = options_for_test(folder_ + std::to_string(shard), ranks_);
    options.shard = shard, options.shards = shards_;
    auto fresh = std::make_shared<Running>(options, times_);
    const std::lock_guard lock(mutex_);
    running_[static_cast<std::size_t>(shard)] = std::move(fresh);
  }
  // Ends the server without notice; its files stay.
  void end(int shard) {
    std::shared_ptr<Running> old;
    {
      const std::lock_guard lock(mutex_);
      old = std::move(running_[static_cast<std::size_t>(shard)]);
    }
    if (!old) return;
    old->sessions.stop();
    old->close();
    // A connecting rank shares the server, and with it the folder that the next server opens.
    while (old.use_count() > 1) std::this_thread::yield();
  }
  PersistentShard& shard(int shard) { return running_[static_cast<std::size_t>(shard)]->rows; }
  ShardSessions& sessions(int shard) { return running_[static_cast<std::size_t>(shard)]->sessions; }

  std::unique_ptr<FrameStream> connect(int shard) {
    std::shared_ptr<Running> to;
    std::uint64_t seed = 0;
    {
      const std::lock_guard lock(mutex_);
      to = running_[static_cast<std::size_t>(shard)];
      seed = ++seed_;
    }
    if (!to) throw SystemError({.operation = "test.connect", .what = "no server is there"});
    auto there = std::make_shared<FaultyPipe>(2 * seed, faults_);
    auto back = std::make_shared<FaultyPipe>(2 * seed + 1, faults_);
    to->serve(std::make_unique<PipeStream>(back, there));
    return std::make_unique<PipeStream>(there, back);
  }

  // Runs that are joined from now on follow the last one of each server, once that is over.
  std::vector<std::uint64_t> follow_what_there_is() {
    follows_.clear();
    for (int shard = 0; shard < shards_; ++shard)
      follows_.push_back(sessions(shard).run_to_follow());
    return follows_;
  }

  // A server's answer to this hello: "welcome", its error, or "" for none. The stream then breaks.
  std::string answer_to(int shard, const WireFrame& hello) {
    const std::int64_t before = sessions(shard).counts().connected_ranks;
    const std::unique_ptr<FrameStream> stream = connect(shard);
    stream->send(hello);
    WireFrame frame;
    std::string reported;
    while (reported.empty() && stream->receive(frame)) {
      const WireMessage message(frame);
      if (message.kind() == MessageKind::kWelcome) reported = "welcome";
      if (message.kind() == MessageKind::kRefused) reported = text_of_error(message.error());
    }
    stream->cancel();
    while (sessions(shard).counts().connected_ranks > before) std::this_thread::yield();
    return reported;
  }
  std::string answer_to(int shard, const Hello& hello) {
    return answer_to(shard, MessageBody::of(hello).frame(0));
  }

  // One rank's.
  std::unique_ptr<RowServers> join(int rank, RunName run, std::int64_t begin,
                                   WireOptions wire = {}) {
    std::vector<std::unique_ptr<ShardChannel>> channels;
    for (int shard = 0; shard < shards_; ++shard) {
      RemoteChannelOptions options;
      options.wait.address = "shard " + std::to_string(shard);
      options.features = features_for_test();
      options.hello.fingerprint = fingerprint_of(options.features, 1);
      options.hello.shard = shard, options.hello.shards = shards_;
      options.hello.rank = rank, options.hello.ranks = ranks_;
      options.hello.run = run, options.hello.begin = begin;
      if (!follows_.empty()) options.hello.follows = follows_[static_cast<std::size_t>(shard)];
      options.hello.holder = holder;
      options.hello.wire = wire;
      options.hello.abandoned = abandoned;
      options.silence = std::chrono::milliseconds(600);
      options.wait.deadline = deadline;
      channels.push_back(
          std::make_unique<RemoteChannel>(options, [this, shard] { return connect(shard); }));
    }
    return make_sharded_servers(features_for_test(), std::move(channels));
  }
  // Servers may have ended again before a starved rank is back.
  std::chrono::milliseconds deadline{120'000};
  std::vector<std::uint64_t> abandoned;  // that ranks name
  ProcessIdentity holder = this_process();

 private:
  struct Running {
    Running(const PersistentShardOptions& options, LeaseTimes times)
        : rows(options, make_map_state()), sessions(rows, times) {}
    ~Running() { close(); }
    void serve(std::unique_ptr<FrameStream> stream) {
      const std::lock_guard lock(mutex);
      streams.push_back(std::move(stream));
      threads.emplace_back([this, s = streams.back().get()] {
        sessions.serve(*s);
        s->cancel();
      });
    }
    void close() {
      const std::lock_guard lock(mutex);
      for (const auto& stream : streams) stream->cancel();
      for (std::thread& thread : threads) thread.join();
      threads.clear();
      streams.clear();
    }
    PersistentShard rows;
    ShardSessions sessions;
    std::mutex mutex;
    std::vector<std::unique_ptr<FrameStream>> streams;
    std::vector<std::thread> threads;
  };

  std::string folder_;
  int shards_, ranks_, faults_;
  LeaseTimes times_;
  std::vector<std::uint64_t> follows_;
  std::uint64_t seed_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Running>> running_;
};

// A rank that trains from version `from`, and reads `ahead`. Returns the first version whose rows
// were wrong, or -1.
inline std::int64_t train(RowServers& servers, int rank, std::int64_t from, std::int64_t to,
                          std::int64_t ahead, ReferenceRows& reference, std::int64_t save_every,
                          const std::function<void(std::int64_t)>& at_step = {}) {
  std::deque<std::unique_ptr<PendingRows>> pending;
  std::int64_t wrong = -1, sent = from;
  const auto version_of = [&](std::int64_t step) { return std::max(from, step - ahead); };
  for (std::int64_t step = from + 1; step <= to; ++step) {
    while (sent < std::min(to, step + ahead - 1))
      pending.push_back(servers.read(reads_for_test(version_of(++sent))));
    if (at_step) at_step(step);
    const std::int64_t version = version_of(step);
    if (!same_rows(pending.front()->wait(), reference.read(version)) && wrong < 0) wrong = version;
    pending.pop_front();
    servers.update(step, gradients_for_test(rank, step, version), kRateFactorForTest);
    if (save_every > 0 && step % save_every == 0) servers.save(step);
  }
  servers.await(to);
  return wrong;
}

inline std::uint64_t digest_of_all(Servers& servers, int shards, std::int64_t version) {
  std::uint64_t sum = 0;
  for (int shard = 0; shard < shards; ++shard) {
    EXPECT_EQ(servers.shard(shard).live()->server->version(), version);
    sum += digest(servers.shard(shard));
  }
  return sum;
}

}  // namespace strata
