// Ranks and servers over streams that lose messages, and servers that end at any moment. No
// sockets: streams are queues.
#include "strata/rowserver/wire/shard_sessions.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <random>
#include <set>
#include <thread>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/codec/byte_codec.h"
#include "strata/rowserver/feature_changes.h"
#include "strata/rowserver/wire/servers_in_process_test.h"

namespace strata {
namespace {

TEST(ShardSessions, KeepBitsOverFaultyStreams) {
  constexpr int kShards = 2, kRanks = 3;
  constexpr std::int64_t kVersions = 80;
  ReferenceRows reference(kRanks, kVersions);
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), kShards, kRanks, 30);
  std::vector<std::int64_t> wrong(kRanks, -2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const auto mine = servers.join(rank, 7, 0);
      wrong[static_cast<std::size_t>(rank)] = train(*mine, rank, 0, kVersions, 4, reference, 0);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<std::int64_t>(kRanks, -1));
  EXPECT_EQ(digest_of_all(servers, kShards, kVersions), digest_of(reference.at(kVersions).rows()));
  std::int64_t streams = 0;
  for (int shard = 0; shard < kShards; ++shard) streams += servers.sessions(shard).counts().streams;
  EXPECT_GT(streams, kShards * kRanks);
}

TEST(ShardSessions, RecoverEveryVersionAfterServerEnds) {
  constexpr int kShards = 2, kRanks = 2;
  constexpr std::int64_t kVersions = 120;
  for (const std::int64_t ahead : {1, 6}) {
    ReferenceRows reference(kRanks, kVersions);
    const ScratchFolder scratch;
    Servers servers(scratch.path("rows"), kShards, kRanks, 0);
    std::vector<std::int64_t> wrong(kRanks, -2);
    // Ranks stay until no server is ended any more: a restarted server asks them for what it has
    // lost.
    std::atomic<int> trained = 0, ends = 0;
    std::promise<void> calm;
    const std::shared_future<void> is_calm = calm.get_future();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        const auto mine = servers.join(rank, 7, 0);
        wrong[static_cast<std::size_t>(rank)] =
            train(*mine, rank, 0, kVersions, ahead, reference, 25,
                  [&](std::int64_t step) {  // not faster than servers end
                    do {
                      std::this_thread::sleep_for(std::chrono::milliseconds(2));
                    } while (step > (ends + 1) * kVersions / 4);
                  });
        ++trained;
        is_calm.wait();
        mine->await(kVersions);
      });
    std::thread killer([&] {
      std::mt19937_64 random(9);
      while (trained < kRanks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
        const int shard = static_cast<int>(random() % kShards);
        servers.end(shard);
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 10));
        servers.start(shard);
        ++ends;
      }
    });
    killer.join();
    calm.set_value();
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(ends, 3);
    EXPECT_EQ(wrong, std::vector<std::int64_t>(kRanks, -1)) << ahead;
    for (int shard = 0; shard < kShards; ++shard) servers.sessions(shard).catch_up();
    EXPECT_EQ(digest_of_all(servers, kShards, kVersions),
              digest_of(reference.at(kVersions).rows()));
  }
}

TEST(ShardSessions, RevertToTheCheckpointOfAResumingTrainer) {
  ReferenceRows reference(1, 40);
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 2, 1, 0);
  {
    const auto first = servers.join(0, 1, 0);
    EXPECT_EQ(train(*first, 0, 0, 25, 3, reference, 10), -1);
  }
  servers.follow_what_there_is();
  const auto second = servers.join(0, 2, 20);
  EXPECT_EQ(train(*second, 0, 20, 40, 3, reference, 0), -1);
  EXPECT_EQ(digest_of_all(servers, 2, 40), digest_of(reference.at(40).rows()));
}

TEST(ShardSessions, KeepRowsOfThePreviousRunAfterARefusal) {
  ReferenceRows reference(1, 40);
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 2, 1, 0);
  {
    const auto first = servers.join(0, 1, 0);
    EXPECT_EQ(train(*first, 0, 0, 25, 3, reference, 10), -1);
  }
  const std::vector<std::uint64_t> before = servers.follow_what_there_is();
  EXPECT_THROW(servers.join(0, 2, 0)->await(0), UserError) << "rows are saved";
  EXPECT_THROW(servers.join(0, 3, 90)->await(90), UserError) << "there are no such rows";
  EXPECT_EQ(servers.follow_what_there_is(), before);
  const auto first = servers.join(0, 1, 0);
  EXPECT_EQ(train(*first, 0, 25, 40, 3, reference, 0), -1);
  EXPECT_EQ(digest_of_all(servers, 2, 40), digest_of(reference.at(40).rows()));
}

TEST(ShardSessions, RefuseHelloThatDoesNotFit) {
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 1, 2, 0);
  const auto refused = [&](const std::function<void(RemoteChannelOptions&)>& change) {
    RemoteChannelOptions options;
    options.features = features_for_test();
    options.hello.fingerprint = fingerprint_of(options.features, 1);
    options.hello.ranks = 2, options.hello.run = 5;
    change(options);
    RemoteChannel channel(options, [&] { return servers.connect(0); });
    std::promise<std::string> reported;
    try {
      channel.when_reached(0, [&](const std::exception_ptr& error) {
        try {
          if (error) std::rethrow_exception(error);
          reported.set_value("");
        } catch (const UserError& known) {
          reported.set_value(known.what());
        }
      });
    } catch (const UserError& known) {
      return std::string(known.what());
    }
    return reported.get_future().get();
  };
  EXPECT_NE(
      refused([](auto& o) { o.hello.wire_version = kWireVersion - 1; }).find("another version"),
      std::string::npos);
  EXPECT_NE(refused([](auto& o) { o.hello.fingerprint ^= 1; }).find("another recipe"),
            std::string::npos);
  const std::string rate = refused([](auto& o) {
    std::vector<FeatureSpec> features = o.features;
    features[0].optimizer.learning_rate = 0.75;
    o.hello.fingerprint = fingerprint_of(features, 2);
    o.hello.tables = pack_features(features, 2);
  });
  EXPECT_NE(rate.find("expected  train.seed 1, user: optimizer.learning_rate "), std::string::npos)
      << rate;
  EXPECT_NE(rate.find("got       train.seed 2, user: optimizer.learning_rate 0.75"),
            std::string::npos)
      << rate;
  EXPECT_NE(refused([](auto& o) { o.hello.shards = 2; }).find("shard 0 of 2"), std::string::npos);
  EXPECT_NE(refused([](auto& o) { o.hello.ranks = 3; }).find("rank 0 of 3"), std::string::npos);
  EXPECT_NE(refused([](auto& o) { o.hello.begin = 3; }).find("version 3"), std::string::npos);
  EXPECT_EQ(refused([](auto&) {}), "");
}

// A trainer that ended before its first checkpoint was complete begins anew: it says that this run
// is its.
TEST(ShardSessions, LetTheSameTrainerRestartWithoutCheckpoint) {
  ReferenceRows reference(1, 40);
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 2, 1, 0);
  {
    const auto first = servers.join(0, 1, 0);
    EXPECT_EQ(train(*first, 0, 0, 25, 3, reference, 10), -1);
  }
  servers.follow_what_there_is();
  EXPECT_THROW(servers.join(0, 2, 0)->await(0), UserError);
  servers.abandoned = {7, 8, 0};
  EXPECT_THROW(servers.join(0, 3, 0)->await(0), UserError);
  EXPECT_TRUE(servers.shard(0).saved(20));
  servers.abandoned = {7, 1};
  const auto next = servers.join(0, 4, 0);
  EXPECT_EQ(train(*next, 0, 0, 40, 3, reference, 0), -1);
  EXPECT_EQ(digest_of_all(servers, 2, 40), digest_of(reference.at(40).rows()));
  EXPECT_FALSE(servers.shard(0).saved(20));
}

TEST(ShardSessions, ReportTheAwaitedServerOnce) {
  std::mutex mutex;
  std::vector<std::string> reported;
  RemoteChannelOptions options;
  options.wait.address = "host1:7001";
  options.features = features_for_test();
  options.wait.deadline = std::chrono::milliseconds(10'000);
  options.wait.notice_after = std::chrono::milliseconds(100);
  options.wait.notice = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    reported.push_back(text);
  };
  std::promise<void> failed;
  {
    RemoteChannel channel(options, []() -> std::unique_ptr<FrameStream> {
      throw SystemError({.operation = "test.connect", .what = "no server is there"});
    });
    channel.when_reached(1, [&](const std::exception_ptr& error) {
      if (error) failed.set_value();
    });
    failed.get_future().wait();
  }
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_NE(reported[0].find("host1:7001 until "), std::string::npos) << reported[0];
  EXPECT_NE(reported[0].find("no server is there"), std::string::npos) << reported[0];
}

TEST(ShardSessions, FailAfterTheDeadlineWithoutServer) {
  const ScratchFolder scratch;
  Servers servers(scratch.path("rows"), 1, 1, 0);
  servers.deadline = std::chrono::milliseconds(10'000);
  const auto mine = servers.join(0, 1, 0);
  mine->update(1, gradients_for_test(0, 1, 0), kRateFactorForTest);
  mine->await(1);
  servers.end(0);
  EXPECT_THROW(mine->await(2), SystemError);
}

// ---- Messages

TEST(WireMessages, RefuseLengthsBeyondTheirBytes) {
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    ByteWriter liar;
    liar.varint(length);
    liar.varint(1);
    EXPECT_THROW(ByteReader(liar.out(), "test").ids(), SystemError);
    EXPECT_THROW(ByteReader(liar.out(), "test").blob(), SystemError);
    EXPECT_THROW(ByteReader(liar.out(), "test").text(), SystemError);
  }
}

std::vector<FeatureRead> reads_of(const std::vector<FeatureRows>& rows) {
  std::vector<FeatureRead> reads;
  for (const FeatureRows& of : rows)
    reads.push_back({.feature = of.feature, .version = of.version, .ids = of.ids});
  return reads;
}

TEST(WireMessages, KeepIdsOfAnyDistance) {
  std::mt19937_64 random(3);
  for (int bits = 0; bits <= 64; ++bits)
    for (const std::size_t count : {0u, 1u, 2u, 127u, 128u, 129u, 1000u}) {
      std::set<std::uint64_t> distinct = {0, ~std::uint64_t{0}};
      if (bits < 64) distinct = {random() >> 60};
      std::uint64_t last = *distinct.begin();
      // Differences of so many bits, and a smaller one here and there.
      while (distinct.size() < count) {
        const std::uint64_t mask = bits == 0 ? 0 : ~std::uint64_t{0} >> (64 - bits);
        const std::uint64_t id =
            bits >= 54 ? random() >> (64 - bits) : last + 1 + (random() & mask);
        distinct.insert(id);
        last = id;
      }
      std::vector<std::uint64_t> ids(distinct.begin(), distinct.end());
      ids.resize(std::min(ids.size(), count));
      ByteWriter to;
      to.ids(ids);
      to.varint(77);  // what comes next is found
      ByteReader from(to.out(), "test");
      ASSERT_EQ(from.ids(), ids) << bits << " bits, " << count << " ids";
      ASSERT_EQ(from.varint(), 77u);
      from.require_end();
    }
}

TEST(WireMessages, RefuseIdsThatDoNotAscend) {
  using Ids = std::vector<std::uint64_t>;
  Ids late(200);
  for (std::size_t i = 0; i < late.size(); ++i) late[i] = 7 * i;
  Ids repeated = late, back = late;
  repeated[150] = repeated[149];
  back[128] = 3;  // the first of a block
  for (const Ids& ids : {Ids{5, 5}, Ids{5, 4}, Ids{0, 0}, repeated, back}) {
    ByteWriter to;
    to.ids(ids);
    EXPECT_THROW(ByteReader(to.out(), "test").ids(), SystemError);
  }
  for (const int width : {0, 65, 255}) {
    ByteWriter to;
    to.varint(1);
    to.out().push_back(static_cast<std::byte>(width));
    to.fixed64(1), to.fixed64(1);
    EXPECT_THROW(ByteReader(to.out(), "test").ids(), SystemError) << width;
  }
}

TEST(WireMessages, RefuseAnswerToAnotherRequest) {
  const std::vector<FeatureSpec> features = features_for_test();
  const std::vector<FeatureRows> rows = gradients_for_test(1, 2, 1);
  const WireFrame frame = MessageBody::of_rows(7, rows, features, WirePrecision::kFp32).frame(7);
  const WireMessage message(frame);
  std::vector<FeatureRead> requested = reads_of(rows);
  const std::vector<FeatureRows> got = message.rows(features, requested);
  ASSERT_EQ(got.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(got[i].feature, rows[i].feature);
    EXPECT_EQ(got[i].version, rows[i].version);
    EXPECT_EQ(got[i].ids, rows[i].ids);
    EXPECT_EQ(got[i].values, rows[i].values);
  }
  const auto refused = [&](const std::function<void(std::vector<FeatureRead>&)>& change) {
    std::vector<FeatureRead> other = reads_of(rows);
    change(other);
    const std::vector<FeatureRead> before = other;
    EXPECT_THROW(message.rows(features, other), SystemError);
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(other[i].ids, before[i].ids);
  };
  refused([](auto& reads) { reads.pop_back(); });
  refused([](auto& reads) { ++reads.back().version; });
  refused([](auto& reads) { std::swap(reads.front().feature, reads.back().feature); });
  refused([](auto& reads) { ++reads.back().ids.back(); });  // as many ids, another one
  refused([](auto& reads) { reads.back().ids.push_back(~std::uint64_t{0}); });
}

TEST(WireMessages, JoinPiecesToTheWholeFrame) {
  const std::vector<FeatureSpec> features = features_for_test();
  const MessageBody body =
      MessageBody::of_part(4, part_for_test(0, 4), features, WirePrecision::kFp16);
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{300}, std::int64_t{1} << 40}) {
    const FramePieces pieces = body.pieces(number);
    EXPECT_EQ(pieces.joined().size(), pieces.size());
    EXPECT_EQ(pieces.fields, body.pieces(1).fields) << "copied";
    const WireFrame frame = body.frame(number);
    const WireMessage message(frame);
    EXPECT_EQ(message.number(), number);
    EXPECT_EQ(message.part(features).part.gradients.size(), part_for_test(0, 4).gradients.size());
  }
}

TEST(WireMessages, RefuseHostileBytes) {
  const std::vector<FeatureSpec> features = features_for_test();
  const std::vector<FeatureRead> requested = reads_of(gradients_for_test(1, 2, 1));
  std::vector<WireFrame> frames;
  Request request{.id = 9, .answered_below = 4, .version = 3, .reads = reads_for_test(3)};
  frames.push_back(MessageBody::of(MessageKind::kRead, request).frame(5));
  for (const WirePrecision precision : {WirePrecision::kFp32, WirePrecision::kScaledInt8}) {
    frames.push_back(MessageBody::of_part(4, part_for_test(0, 4), features, precision).frame(6));
    frames.push_back(
        MessageBody::of_rows(7, gradients_for_test(1, 2, 1), features, precision).frame(7));
  }
  frames.push_back(MessageBody::of(Hello{}).frame(0));
  const auto read_all = [&](const WireFrame& frame) {
    const WireMessage message(frame);
    switch (message.kind()) {
      case MessageKind::kHello:
        message.hello();
        break;
      case MessageKind::kPart:
        message.part(features);
        break;
      case MessageKind::kRows: {
        std::vector<FeatureRead> mine = requested;
        message.rows(features, mine);
        break;
      }
      default:
        message.request();
    }
  };
  for (const WireFrame& frame : frames) EXPECT_NO_THROW(read_all(frame));
  std::mt19937_64 random(1);
  // As they come: the checksum finds whatever changed.
  for (int trial = 0; trial < 3000; ++trial) {
    WireFrame frame = frames[random() % frames.size()];
    if (trial % 2 == 0)
      frame.resize(random() % frame.size());
    else
      frame[random() % frame.size()] ^= static_cast<std::byte>(1 << (random() % 8));
    EXPECT_THROW(read_all(frame), SystemError);
  }
  // With a checksum that fits, as a liar would send: an error or something well formed, no crash.
  int refused = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    WireFrame frame = frames[random() % frames.size()];
    frame.resize(frame.size() - 8);
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n)
      frame[random() % frame.size()] = static_cast<std::byte>(random());
    if (trial % 3 == 0) frame.resize(random() % frame.size());
    seal_for_test(frame);
    try {
      read_all(frame);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace strata
