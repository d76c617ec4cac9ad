// A server of rows and a replica of it in one process; streams are queues that may lose messages.
#include "strata/rowserver/wire/replica.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/shard/map_shard_test.h"
#include "strata/rowserver/wire/faulty_stream_test.h"

namespace strata {
namespace {

constexpr std::int64_t kVersions = 300;

class ReplicaTest : public testing::Test {
 protected:
  ~ReplicaTest() override {
    end_replica();
    end_primary();
  }

  static PersistentShardOptions options_of(const std::string& folder, std::int64_t log_limit) {
    PersistentShardOptions options = options_for_test(folder);
    options.log_limit = log_limit;
    return options;
  }

  void start_primary(std::int64_t log_limit = 0) {
    auto shard = std::make_shared<PersistentShard>(options_of(scratch.path("primary"), log_limit),
                                                   make_map_state());
    shard->live()->server->release();
    const std::lock_guard lock(mutex);
    ended = false;
    primary = std::move(shard);
  }
  void end_primary() {
    ended = true;
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex);
      for (const auto& stream : streams) stream->cancel();
      threads = std::move(serving);
      serving.clear();
    }
    for (std::thread& thread : threads) thread.join();
    const std::lock_guard lock(mutex);
    streams.clear();
    primary = nullptr;
  }

  std::unique_ptr<FrameStream> follow(const FollowRequest& request) {
    const std::lock_guard lock(mutex);
    if (!primary || ended)
      throw SystemError({.operation = "embed.connect", .what = "no server is there"});
    auto there = std::make_shared<FaultyPipe>(++seed, 0);
    auto back = std::make_shared<FaultyPipe>(++seed, faults);
    streams.push_back(std::make_unique<PipeStream>(back, there));
    serving.emplace_back([this, request, shard = primary, stream = streams.back().get()] {
      serve_updates(
          *shard, request, *stream, [this] { return trains.load(); },
          [this] { return ended.load(); });
      // A queue has room for all; what was said last must be heard.
      stream->close();
    });
    return std::make_unique<PipeStream>(there, back);
  }

  void start_replica(std::int64_t log_limit = 0,
                     const std::function<void(PersistentShardOptions&)>& change = {}) {
    PersistentShardOptions options = options_of(scratch.path("replica"), log_limit);
    if (change) change(options);
    rows = std::make_unique<PersistentShard>(options, make_map_state());
    replica = std::make_unique<Replica>(
        *rows, [this](const FollowRequest& request) { return follow(request); });
    replica->start();
  }
  void end_replica() {
    replica = nullptr;
    rows = nullptr;
  }

  void update(std::int64_t from, std::int64_t to) {
    for (std::int64_t version = from; version <= to; ++version)
      primary->live()->server->update(0, version, part_for_test(variant, version));
  }
  void save(std::int64_t version) {
    primary->live()->server->at(version, [&](const std::exception_ptr& error) {
      ASSERT_FALSE(error);
      primary->save(version);
    });
  }

  // Until the replica has this version of the primary's run.
  void expect_follows(std::int64_t version) {
    for (int i = 0; i < 3000; ++i) {
      if (const auto error = replica->failure()) std::rethrow_exception(error);
      // The run first: versions of the one before may be the same.
      if (rows->log().run().number == primary->log().run().number &&
          rows->log().head() == version && rows->live()->server->version() == version)
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ASSERT_EQ(rows->live()->server->version(), version);
    if (variant == 0) {
      ASSERT_EQ(digest(*rows), digest_of(reference.at(version).rows()));
    }
    ASSERT_EQ(digest(*primary), digest(*rows));
  }
  std::string refusal() {
    for (int i = 0; i < 2000 && !replica->failure(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    try {
      if (const auto error = replica->failure()) std::rethrow_exception(error);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  MessageBytes record(std::int64_t version) const {
    const auto bytes =
        std::make_shared<const std::vector<std::byte>>(primary->log().record(version));
    return {.message = bytes, .bytes = *bytes};
  }

  ScratchFolder scratch;
  ReferenceRows reference{1, kVersions};
  std::mutex mutex;
  std::atomic<bool> ended = false, trains = true;
  std::shared_ptr<PersistentShard> primary;
  std::vector<std::unique_ptr<PipeStream>> streams;
  std::vector<std::thread> serving;
  std::uint64_t seed = 0;
  int faults = 0;
  int variant = 0;  // of the updates
  std::unique_ptr<PersistentShard> rows;
  std::unique_ptr<Replica> replica;
};

TEST_F(ReplicaTest, ReachesEveryVersionWithEqualDigests) {
  start_primary();
  start_replica();
  for (int i = 0; i < 2000 && !replica->counts().following; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  primary->begin_run(5, 0);
  update(1, 1);
  expect_follows(1);  // it is there before a snapshot drops what it would miss
  update(2, 20);
  expect_follows(20);
  save(20);
  update(21, 40);
  expect_follows(40);
  save(40);
  expect_follows(40);
  for (int i = 0; i < 3000 && replica->counts().equal_digests == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const ReplicaCounts counts = replica->counts();
  EXPECT_GT(counts.equal_digests, 0);
  EXPECT_EQ(counts.different_digests, 0);
  EXPECT_EQ(counts.snapshots, 0);
  EXPECT_TRUE(counts.following);
  EXPECT_EQ(counts.primary_version, 40);
}

TEST_F(ReplicaTest, ResumesAtItsVersion) {
  start_primary();
  primary->begin_run(5, 0);
  update(1, 30);
  start_replica();
  expect_follows(30);
  end_replica();
  update(31, 50);
  start_replica();
  EXPECT_GE(rows->log().head(), 30);
  expect_follows(50);
  EXPECT_EQ(replica->counts().snapshots, 0);
  end_primary();
  for (int i = 0; i < 3000 && replica->counts().following; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(replica->counts().following);
  start_primary();
  update(51, 60);
  expect_follows(60);
  EXPECT_EQ(replica->counts().snapshots, 0);
}

TEST_F(ReplicaTest, LoadsSnapshotIfTheLogStartsLater) {
  start_primary(4 << 10);
  primary->begin_run(5, 0);
  update(1, 20);
  start_replica(4 << 10);
  expect_follows(20);
  end_replica();
  update(21, 200);
  EXPECT_GT(primary->log().first(), 21);
  start_replica(4 << 10);
  expect_follows(200);
  EXPECT_EQ(replica->counts().snapshots, 1);
  update(201, 250);
  expect_follows(250);
  EXPECT_LT(rows->log().bytes(), 6 << 10) << "its log has the limit, too";
  end_replica();
  start_replica(4 << 10);
  expect_follows(250);
  EXPECT_EQ(replica->counts().snapshots, 0);
}

TEST_F(ReplicaTest, RevertsWithTheTrainer) {
  start_primary();
  primary->begin_run(5, 0);
  update(1, 10);
  save(10);
  update(11, 30);
  start_replica();
  expect_follows(30);
  const std::int64_t snapshots = replica->counts().snapshots;
  primary->begin_run(6, 30);  // where it is
  update(31, 35);
  expect_follows(35);
  primary->begin_run(7, 20);
  expect_follows(20);
  update(21, 40);
  expect_follows(40);
  EXPECT_EQ(replica->counts().snapshots, snapshots) << "its own log reaches back";
  // Two runs that it does not see: what it shares with the last one ends where the first of them
  // began.
  end_replica();
  primary->begin_run(8, 15);
  variant = 1;
  update(16, 25);
  primary->begin_run(9, 22);
  update(23, 38);
  start_replica();
  expect_follows(38);
  // Its folder goes back no further than the snapshot that it has.
  end_replica();
  std::filesystem::remove_all(scratch.path("replica"));
  save(38);
  start_replica();
  expect_follows(38);
  EXPECT_EQ(replica->counts().snapshots, 1);
  primary->begin_run(10, 12);
  update(13, 20);
  expect_follows(20);
  EXPECT_EQ(replica->counts().snapshots, 2);
}

TEST_F(ReplicaTest, DetectsAndReplacesDifferentRows) {
  start_primary();
  start_replica();
  primary->begin_run(5, 0);
  update(1, 20);
  expect_follows(20);
  const std::vector<std::uint64_t> ids = {3};
  const std::vector<float> wrong(4, 0.5f);
  rows->live()->state->rows().update(20, 0, ids, wrong, 1);
  update(21, 22);
  save(22);
  update(23, 25);
  for (int i = 0; i < 1000 && replica->counts().snapshots == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(replica->counts().different_digests, 1);
  expect_follows(25);
}

// A caller that inspects meanwhile runs the work that waits for the rows, including snapshots of a
// log beyond its limit.
TEST_F(ReplicaTest, AnswersDuringUpdatesAndLogCuts) {
  start_primary();
  start_replica(2 << 10);
  primary->begin_run(5, 0);
  std::atomic<bool> over = false;
  std::vector<std::thread> asking;
  for (int i = 0; i < 2; ++i)
    asking.emplace_back([&] {
      while (!over) {
        const auto done = std::make_shared<std::promise<void>>();
        const std::shared_ptr<LiveShard> live = rows->live();
        try {
          live->server->inspect([done](const std::exception_ptr&) { done->set_value(); });
          done->get_future().wait();
        } catch (const Error&) {
        }
      }
    });
  for (std::int64_t version = 1; version <= kVersions; ++version) {
    update(version, version);
    if (version % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (int i = 0; i < 3000 && !replica->failure() && rows->live()->server->version() < kVersions;
       ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  over = true;
  for (std::thread& thread : asking) thread.join();
  expect_follows(kVersions);
  EXPECT_GT(rows->compactions().made, 3);
  EXPECT_EQ(rows->compactions().failed, 0);
  end_replica();
  start_replica(2 << 10);
  EXPECT_EQ(rows->log().head(), kVersions);
  expect_follows(kVersions);
  EXPECT_EQ(replica->counts().snapshots, 0) << "its own folder is whole";
}

// Versions of two runs are other rows, and so are their digests.
TEST_F(ReplicaTest, IgnoresDigestsOfEndedRun) {
  const auto compared = [&](std::int64_t digests) {
    for (int i = 0; i < 1000 && replica->counts().equal_digests < digests; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return replica->counts().equal_digests;
  };
  start_primary();
  start_replica();
  primary->begin_run(5, 0);
  update(1, 20);
  expect_follows(20);
  update(21, 30);
  expect_follows(30);
  save(30);
  EXPECT_EQ(compared(1), 1);
  primary->begin_run(6, 20);
  variant = 1;
  update(21, 30);
  expect_follows(30);
  save(30);
  EXPECT_EQ(compared(2), 2) << "of the same version of another run";
  EXPECT_EQ(replica->counts().different_digests, 0);
}

// Frames that are played to a replica, once.
class PlayedFrames : public FrameStream {
 public:
  explicit PlayedFrames(std::vector<StreamFrame> frames) : frames_(std::move(frames)) {}
  bool send(const WireFrame&) override { return true; }
  bool receive(WireFrame& frame) override {
    if (next_ == frames_.size()) return false;
    frame = encode_stream_frame(frames_[next_++]).joined();
    return true;
  }
  void cancel() override {}
  bool alive() override { return next_ < frames_.size(); }

 private:
  std::vector<StreamFrame> frames_;
  std::size_t next_ = 0;
};

TEST_F(ReplicaTest, EndsStreamAfterMissingFrame) {
  start_primary();
  primary->begin_run(5, 0);
  update(1, 3);
  // That of number 2 said that the third update is of another run.
  const std::vector<StreamFrame> frames = {
      {.kind = StreamKind::kRun, .run = {.number = 5, .begin = 0}, .number = 0},
      {.kind = StreamKind::kUpdate, .bytes = record(1), .number = 1},
      {.kind = StreamKind::kUpdate, .bytes = record(2), .number = 3}};
  rows =
      std::make_unique<PersistentShard>(options_of(scratch.path("replica"), 0), make_map_state());
  std::atomic<int> streams = 0;
  replica = std::make_unique<Replica>(*rows, [&](const FollowRequest&) {
    return std::make_unique<PlayedFrames>(streams++ == 0 ? frames : std::vector<StreamFrame>());
  });
  replica->start();
  for (int i = 0; i < 2000 && streams < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(streams, 2);
  EXPECT_EQ(rows->log().head(), 1) << "an update after the gap was accepted";
  end_replica();
}

TEST_F(ReplicaTest, ReportsCatchingUpWithItsLastUpdate) {
  start_primary();
  primary->begin_run(5, 0);
  update(1, 3);
  const std::vector<StreamFrame> frames = {
      {.kind = StreamKind::kRun, .run = {.number = 5, .begin = 0}, .number = 0},
      {.kind = StreamKind::kUpdate, .bytes = record(1), .number = 1},
      {.kind = StreamKind::kIdle, .version = 3, .number = 2},
      {.kind = StreamKind::kUpdate, .bytes = record(2), .number = 3},
      {.kind = StreamKind::kUpdate, .bytes = record(3), .number = 4}};
  rows =
      std::make_unique<PersistentShard>(options_of(scratch.path("replica"), 0), make_map_state());
  std::atomic<int> streams = 0;
  std::atomic<std::int64_t> at = -1;
  replica = std::make_unique<Replica>(
      *rows,
      [&](const FollowRequest&) {
        return std::make_unique<PlayedFrames>(streams++ == 0 ? frames : std::vector<StreamFrame>());
      },
      [&] { at = rows->log().head(); });
  replica->start();
  for (int i = 0; i < 2000 && streams < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(at, 3) << "the status names the primary's version, and no update followed the last";
  end_replica();
}

// An update's record has a checksum of its own.
TEST_F(ReplicaTest, DetectsEveryFlippedBitOfAFrame) {
  start_primary();
  primary->begin_run(5, 0);
  update(1, 1);
  const auto record = std::make_shared<const std::vector<std::byte>>(primary->log().record(1));
  for (const StreamKind kind : {StreamKind::kUpdate, StreamKind::kChunk}) {
    const WireFrame whole = encode_stream_frame({.kind = kind,
                                                 .version = 300,
                                                 .run = {.number = 5, .begin = 2},
                                                 .digest = 7,
                                                 .bytes = {.message = record, .bytes = *record},
                                                 .number = 1000})
                                .joined();
    for (std::size_t at = 0; at <= whole.size(); ++at) {
      const auto frame = std::make_shared<WireFrame>(whole);
      if (at < whole.size()) (*frame)[at] ^= std::byte{1} << at % 8;
      bool seen = false;
      try {
        parse_log_record(decode_stream_frame(frame).bytes.bytes);
      } catch (const SystemError&) {
        seen = true;
      }
      ASSERT_EQ(seen, at < whole.size()) << at;
    }
  }
}

// Once is damage on the way, again and again is what the primary has.
TEST_F(ReplicaTest, RefusesDamagedLogOfThePrimary) {
  start_primary();
  primary->begin_run(5, 0);
  update(1, 3);
  primary->log().wait_durable(3);
  const std::string path = scratch.path("primary") + "/updates-00000000000000000001.log";
  const auto flip = [&](std::int64_t from_end) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-from_end, std::ios::end);
    const char byte = static_cast<char>(file.get());
    file.seekp(-from_end, std::ios::end), file.put(static_cast<char>(byte ^ 16));
  };
  flip(20);
  start_replica();
  EXPECT_NE(refusal().find("damaged update"), std::string::npos) << refusal();
  EXPECT_EQ(rows->log().head(), 2);
  end_replica();
  flip(20);
  start_replica();
  expect_follows(3);
  end_replica();
  // A missing file that no process has removed is reported once, and not retried for ever.
  std::filesystem::remove(path);
  std::filesystem::remove_all(scratch.path("replica"));
  start_replica();
  EXPECT_NE(refusal().find("updates-"), std::string::npos) << refusal();
}

TEST_F(ReplicaTest, RefusesUnfitPrimaryOnce) {
  start_primary();
  start_replica(0, [](PersistentShardOptions& options) { options.seed = 2; });
  EXPECT_NE(refusal().find("another recipe"), std::string::npos) << refusal();
  end_replica();
  std::filesystem::remove_all(scratch.path("replica"));
  start_replica(0, [](PersistentShardOptions& options) { options.shards = 2; });
  EXPECT_NE(refusal().find("shard 0 of 2"), std::string::npos) << refusal();
  end_replica();
  // Bytes of a program that has another stream.
  std::filesystem::remove_all(scratch.path("replica"));
  rows =
      std::make_unique<PersistentShard>(options_of(scratch.path("replica"), 0), make_map_state());
  replica = std::make_unique<Replica>(*rows, [&](const FollowRequest&) {
    auto pipe = std::make_shared<FaultyPipe>(1, 0);
    pipe->send(WireFrame(60, std::byte{7}));
    return std::make_unique<PipeStream>(std::make_shared<FaultyPipe>(2, 0), pipe);
  });
  replica->start();
  EXPECT_NE(refusal().find("another version"), std::string::npos) << refusal();
  FollowRequest other{.wire_version = kWireVersion + 1, .fingerprint = primary->fingerprint()};
  const auto stream = follow(other);
  const auto frame = std::make_shared<WireFrame>();
  ASSERT_TRUE(stream->receive(*frame));
  EXPECT_EQ(decode_stream_frame(frame).kind, StreamKind::kRefused);
}

TEST_F(ReplicaTest, LearnsWhetherRanksTrainWithThePrimary) {
  const auto expect = [&](bool reported) {
    for (int i = 0; i < 1000 && replica->counts().primary_trains != reported; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(replica->counts().primary_trains, reported);
  };
  start_primary();
  primary->begin_run(5, 0);
  update(1, 3);
  start_replica();
  expect_follows(3);
  EXPECT_TRUE(replica->counts().primary_trains);
  for (const bool reported : {false, true}) trains = reported, expect(reported);
}

TEST_F(ReplicaTest, LosesNoUpdateAfterRestartsAndLostFrames) {
  faults = 20;
  std::mt19937_64 random(4);
  start_primary(6 << 10);
  start_replica(6 << 10);
  std::uint64_t run = 5;
  primary->begin_run(run, 0);
  std::int64_t version = 0, saved = 0;
  for (int round = 0; round < 40; ++round) {
    const auto more = static_cast<std::int64_t>(random() % 12);
    if (version + more > kVersions) break;
    update(version + 1, version + more);
    version += more;
    switch (random() % 6) {
      case 0:
        end_replica();
        start_replica(6 << 10);
        break;
      case 1:
        end_primary();
        start_primary(6 << 10);
        break;
      case 2:
        if (version > saved) save(saved = version);
        break;
      case 3:
        if (saved == 0) break;
        primary->begin_run(++run, saved);
        version = saved;
        break;
      case 4:
        expect_follows(version);
        break;
      default:
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 5));
    }
  }
  expect_follows(version);
  EXPECT_EQ(replica->counts().different_digests, 0);
}

}  // namespace
}  // namespace strata
