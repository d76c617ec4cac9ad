// Tests what a follower receives while the shard that it follows changes.
#include "strata/rowserver/wire/update_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "strata/base/durable_file.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/shard/map_shard_test.h"
#include "strata/rowserver/wire/faulty_stream_test.h"

namespace strata {
namespace {

FollowRequest request_of(const PersistentShard& shard, std::uint64_t run, std::int64_t version) {
  return {.fingerprint = shard.fingerprint(), .run = run, .version = version};
}

void update(PersistentShard& shard, std::int64_t from, std::int64_t to) {
  for (std::int64_t version = from; version <= to; ++version)
    shard.live()->server->update(0, version, part_for_test(0, version));
}

void save(PersistentShard& shard, std::int64_t version) {
  shard.live()->server->at(version, [&](const std::exception_ptr& error) {
    ASSERT_FALSE(error);
    shard.save(version);
  });
}

// Follows a shard, frame by frame.
class Follower {
 public:
  Follower(PersistentShard& shard, const FollowRequest& request, std::function<bool()> trains)
      : serving_([this, &shard, request, trains = std::move(trains)] {
          serve_updates(shard, request, server_, trains, [this] { return ended_.load(); });
          server_.close();
        }) {}
  ~Follower() {
    ended_ = true;
    server_.cancel();
    serving_.join();
  }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // The next one of these kinds.
  StreamFrame next(const std::set<StreamKind>& kinds) {
    while (true) {
      const auto bytes = std::make_shared<WireFrame>();
      if (!back_->receive(*bytes)) break;
      StreamFrame frame = decode_stream_frame(bytes);
      if (kinds.contains(frame.kind)) return frame;
    }
    ADD_FAILURE() << "the stream has ended";
    return {};
  }

 private:
  std::shared_ptr<FaultyPipe> there_ = std::make_shared<FaultyPipe>(1, 0);
  std::shared_ptr<FaultyPipe> back_ = std::make_shared<FaultyPipe>(2, 0);
  PipeStream server_{back_, there_};
  std::atomic<bool> ended_ = false;
  std::thread serving_;
};

// A run that begins where rows are saved before its first update: nothing of the log changes with
// the digest.
TEST(UpdateStream, SendsNewDigestBeforeTheNextUpdate) {
  const ScratchFolder scratch;
  PersistentShard shard(options_for_test(scratch.path("rows")), make_map_state());
  shard.begin_run(5, 0);
  update(shard, 1, 22);
  shard.begin_run(6, 22);
  bool moved = false;
  // It is asked between the look for a digest and that for an update.
  Follower follower(shard, request_of(shard, 6, 22), [&] {
    if (!std::exchange(moved, true)) {
      save(shard, 22);
      update(shard, 23, 23);
      shard.log().wait_durable(23);
    }
    return true;
  });
  const StreamFrame digest = follower.next({StreamKind::kDigest, StreamKind::kUpdate});
  ASSERT_EQ(digest.kind, StreamKind::kDigest);
  EXPECT_EQ(digest.version, 22);
  EXPECT_EQ(follower.next({StreamKind::kDigest, StreamKind::kUpdate}).kind, StreamKind::kUpdate);
}

TEST(UpdateStream, CountsUpdatesThatAreNotDurableAsTraining) {
  const ScratchFolder scratch;
  PersistentShardOptions options = options_for_test(scratch.path("rows"));
  options.sync = {.updates = 100, .milliseconds = 600'000};
  PersistentShard shard(options, make_map_state());
  shard.begin_run(5, 0);
  update(shard, 1, 1);
  ASSERT_EQ(shard.log().durable(), 0);
  Follower follower(shard, request_of(shard, 5, 0), [] { return false; });
  ASSERT_EQ(follower.next({StreamKind::kStatus, StreamKind::kIdle}).kind, StreamKind::kStatus);
  shard.live()->server->inspect(
      [&](const std::exception_ptr&) { shard.log().begin_file(); });  // which makes it durable
  EXPECT_EQ(follower.next({StreamKind::kIdle}).version, 1);
}

class FilesWithAHook : public FileSystem {
 public:
  int rename(const std::string& from, const std::string& to) override {
    if (const auto once = std::exchange(hook, nullptr)) once();
    return FileSystem::rename(from, to);
  }
  std::function<void()> hook;
};

// For a replica that other replicas follow.
TEST(UpdateStream, SendsNoRowsWhileASnapshotReplacesThem) {
  const ScratchFolder scratch;
  FilesWithAHook files;
  PersistentShardOptions options = options_for_test(scratch.path("replica"));
  options.files = &files;
  PersistentShard replica(options, make_map_state());
  std::unique_ptr<Follower> follower;
  const std::string path = scratch.path("replica") + "/snapshot.part";
  {
    PersistentShard primary(options_for_test(scratch.path("primary")), make_map_state());
    primary.begin_run(5, 0);
    update(primary, 1, 40);
    save(primary, 40);
    std::filesystem::copy(primary.newest_base().path, path);
  }
  files.hook = [&] {
    follower =
        std::make_unique<Follower>(replica, request_of(replica, 0, -1), [] { return false; });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  replica.install(path, 40, {.number = 5, .begin = 0});
  ASSERT_TRUE(follower);
  const StreamFrame head = follower->next({StreamKind::kSnapshot});
  EXPECT_EQ(head.version, 40);
  EXPECT_EQ(head.run.number, 5u);
}

}  // namespace
}  // namespace strata
