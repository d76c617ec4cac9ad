// Ranks that come back to a server that was started again; the test writes their messages itself.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "strata/base/durable_file.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/shard/map_shard_test.h"
#include "strata/rowserver/wire/faulty_stream_test.h"
#include "strata/rowserver/wire/shard_sessions.h"

namespace strata {
namespace {

// Making a snapshot takes as long as the test wants.
class SlowFiles : public FileSystem {
 public:
  int create(const std::string& path) override {
    if (path.ends_with(".part")) {
      std::unique_lock lock(mutex_);
      waiting_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return released_; });
    }
    return FileSystem::create(path);
  }
  void await_snapshot() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool waiting_ = false, released_ = false;
};

// A stream of rank 0.
class RankStream {
 public:
  RankStream(ShardSessions& sessions, const PersistentShard& shard, std::int64_t requests)
      : serving_([this, &sessions] {
          sessions.serve(server_);
          server_.cancel();
        }) {
    Hello hello;
    hello.fingerprint = shard.fingerprint();
    hello.run = 5;
    hello.requests = requests, hello.oldest = 0;
    send(MessageBody::of(hello));
    EXPECT_EQ(WireMessage(next()).kind(), MessageKind::kWelcome);
  }
  ~RankStream() { end(); }
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

  void send(const MessageBody& body) { there_->send(body.frame(number_++)); }
  // But for statuses.
  WireFrame next() {
    WireFrame frame;
    while (back_->receive(frame))
      if (WireMessage(frame).kind() != MessageKind::kStatus) return frame;
    ADD_FAILURE() << "the stream has ended";
    return MessageBody::bye().frame(0);
  }
  void break_off() { there_->cancel(), back_->cancel(); }
  void end() {
    break_off();
    if (serving_.joinable()) serving_.join();
  }

 private:
  std::shared_ptr<FaultyPipe> there_ = std::make_shared<FaultyPipe>(1, 0);
  std::shared_ptr<FaultyPipe> back_ = std::make_shared<FaultyPipe>(2, 0);
  PipeStream server_{back_, there_};
  std::int64_t number_ = 0;
  std::thread serving_;
};

// Rows go on when all is there again that a rank said it would send. What its last stream brought,
// and is done only now, is not part of that.
TEST(Rejoining, IgnoresRequestsOfTheLostStream) {
  const ScratchFolder scratch;
  PersistentShardOptions options = options_for_test(scratch.path("rows"));
  {
    PersistentShard before(options, make_map_state());
    before.begin_run(5, 0);
    for (std::int64_t version = 1; version <= 3; ++version)
      before.live()->server->update(0, version, part_for_test(0, version));
    before.log().wait_durable(3);
  }
  SlowFiles files;
  options.files = &files;
  PersistentShard shard(options, make_map_state());
  ShardSessions sessions(shard);
  const MessageBody save = MessageBody::of(MessageKind::kSave, Request{.id = 1, .version = 0});
  const MessageBody read =
      MessageBody::of(MessageKind::kRead, Request{.id = 2, .reads = reads_for_test(0)});
  RankStream first(sessions, shard, 1);
  first.send(save);
  files.await_snapshot();
  first.break_off();
  RankStream second(sessions, shard, 2);
  files.release();
  first.end();
  second.send(save);
  second.send(read);
  const WireFrame saved = second.next(), rows = second.next();
  EXPECT_EQ(WireMessage(saved).kind(), MessageKind::kDone);
  EXPECT_EQ(WireMessage(rows).kind(), MessageKind::kRows) << "rows went on before they were read";
  for (int i = 0; i < 2000 && shard.live()->server->version() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(shard.live()->server->version(), 3);
}

}  // namespace
}  // namespace strata
