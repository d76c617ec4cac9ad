// Control messages, and the layouts that every version of the program reads.
#include "strata/rowserver/wire/wire_messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "rows.pb.h"
#include "strata/base/errors.h"
#include "strata/rowserver/codec/byte_codec.h"
#include "strata/rowserver/wire/servers_in_process_test.h"
#include "strata/rowserver/wire/update_stream.h"

namespace strata {
namespace {

namespace proto = embed::v1;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

Hello whole_hello() {
  return {.fingerprint = ~std::uint64_t{0} - 5,
          .shard = 2,
          .shards = 7,
          .rank = 3,
          .ranks = 4,
          .run = 0xfedcba98,
          .follows = 11,
          .begin = kLargest,
          .durable = 20,
          .requests = 5,
          .oldest = 0,
          .wire = {WirePrecision::kScaledInt8, WirePrecision::kFp16},
          .abandoned = {1, ~std::uint64_t{0}},
          .holder = {.host = "h\xf6st", .process = 9, .since = 8, .machine = "boot", .started = 7},
          .tables = {std::byte{0}, std::byte{255}}};
}

Hello sent(const Hello& hello) {
  const WireFrame frame = MessageBody::of(hello).frame(0);
  return WireMessage(frame).hello();
}

TEST(ControlMessages, KeepEveryFieldOfAHello) {
  const Hello hello = whole_hello(), got = sent(hello);
  EXPECT_EQ(got.wire_version, kWireVersion);
  EXPECT_EQ(got.fingerprint, hello.fingerprint);
  EXPECT_EQ(std::vector({got.shard, got.shards, got.rank, got.ranks}), std::vector({2, 7, 3, 4}));
  EXPECT_EQ(got.run, hello.run);
  EXPECT_EQ(got.follows, 11u);
  EXPECT_EQ(std::vector({got.begin, got.durable, got.requests, got.oldest}),
            std::vector<std::int64_t>({kLargest, 20, 5, 0}));
  EXPECT_EQ(got.wire.rows, WirePrecision::kScaledInt8);
  EXPECT_EQ(got.wire.gradients, WirePrecision::kFp16);
  EXPECT_EQ(got.abandoned, hello.abandoned);
  EXPECT_EQ(got.holder.host, hello.holder.host);
  EXPECT_EQ(got.holder.machine, "boot");
  EXPECT_EQ(std::vector({got.holder.process, got.holder.since}), std::vector<std::int64_t>({9, 8}));
  EXPECT_EQ(got.holder.started, 7u);
  EXPECT_EQ(got.tables, hello.tables);
  Hello none = whole_hello();
  none.oldest = -1;
  EXPECT_EQ(sent(none).oldest, -1);
}

TEST(ControlMessages, KeepEveryFieldOfTheOthers) {
  const WireFrame welcome =
      MessageBody::of(Welcome{.version = 1, .last_part = 2, .durable = kLargest}).frame(3);
  const Welcome welcomed = WireMessage(welcome).welcome();
  EXPECT_EQ(std::vector({welcomed.version, welcomed.last_part, welcomed.durable}),
            std::vector<std::int64_t>({1, 2, kLargest}));
  const WireFrame status = MessageBody::of(Status{.durable = 4, .received = 5}).frame(3);
  EXPECT_EQ(WireMessage(status).status().durable, 4);
  EXPECT_EQ(WireMessage(status).status().received, 5);
  const Request request{.id = ~std::uint64_t{0},
                        .answered_below = 6,
                        .version = 7,
                        .reads = {{.feature = 1, .version = 8, .ids = {3, 9, ~std::uint64_t{0}}},
                                  {.feature = 0, .version = 0, .ids = {}}}};
  const WireFrame frame = MessageBody::of(MessageKind::kRead, request).frame(3);
  const Request got = WireMessage(frame).request();
  EXPECT_EQ(got.id, request.id);
  EXPECT_EQ(got.answered_below, 6u);
  EXPECT_EQ(got.version, 7);
  ASSERT_EQ(got.reads.size(), 2u);
  EXPECT_EQ(got.reads[0].feature, 1);
  EXPECT_EQ(got.reads[0].version, 8);
  EXPECT_EQ(got.reads[0].ids, request.reads[0].ids);
  EXPECT_TRUE(got.reads[1].ids.empty());
}

TEST(ControlMessages, CarryErrorsAndIds) {
  const UserError error({.operation = "test.fail", .what = "no such row", .got = "\xff\0"});
  for (const MessageBody& body : {MessageBody::failed(12, error), MessageBody::refused(error)}) {
    const WireFrame frame = body.frame(1);
    try {
      std::rethrow_exception(WireMessage(frame).error());
    } catch (const UserError& got) {
      EXPECT_STREQ(got.what(), error.what());
    }
  }
  const WireFrame failed = MessageBody::failed(12, error).frame(1);
  const WireFrame done = MessageBody::done(~std::uint64_t{0}).frame(1);
  EXPECT_EQ(WireMessage(failed).id(), 12u);
  EXPECT_EQ(WireMessage(done).id(), ~std::uint64_t{0});
}

// A message as its sender would have to write it by hand.
WireFrame frame_of(MessageKind kind, const std::function<void(ByteWriter&)>& write) {
  ByteWriter to;
  to.varint(static_cast<std::uint64_t>(kind));
  to.varint(0);
  write(to);
  to.seal();
  return to.take();
}

TEST(ControlMessages, NameTheVersionOfAHelloOfAnotherProgram) {
  for (const std::uint32_t version : {1u, 6u, kWireVersion + 1, ~0u}) {
    const WireFrame frame = frame_of(MessageKind::kHello, [&](ByteWriter& to) {
      to.fixed32(version);
      for (int i = 0; i < 50; ++i) to.varint(0xffff);  // fields of another layout
    });
    EXPECT_EQ(WireMessage(frame).hello().wire_version, version);
  }
  const WireFrame own = MessageBody::of(whole_hello()).frame(0);
  EXPECT_EQ(ByteReader(std::span(own).subspan(2), "test").fixed32(), kWireVersion);
}

TEST(ControlMessages, WriteRefusalsAsEveryVersionReadsThem) {
  const UserError error({.operation = "test.refuse", .what = "another version"});
  const std::string text = encode_error(error);
  EXPECT_EQ(MessageBody::refused(error).frame(0),
            frame_of(MessageKind::kRefused, [&](ByteWriter& to) {
              to.varint(0);
              to.text(text);
            }));
  ByteWriter follower;  // the fields of a frame of version 6
  for (const int number : {8, 0, 0}) follower.varint(static_cast<std::uint64_t>(number));
  follower.fixed64(0);
  follower.varint(0);
  follower.fixed64(0);
  follower.text(text);
  follower.seal();
  EXPECT_EQ(refused_follower(error).joined(), follower.out());
  const StreamFrame frame =
      decode_stream_frame(std::make_shared<WireFrame>(refused_follower(error).joined()));
  EXPECT_EQ(frame.kind, StreamKind::kRefused);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame.bytes.bytes.data()),
                        frame.bytes.bytes.size()),
            text);
}

TEST(ControlMessages, KeepEveryFieldOfAFrameForAReplica) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(300, std::byte{9});
  const FramePieces pieces = encode_stream_frame({.kind = StreamKind::kChunk,
                                                  .version = 5,
                                                  .run = {.number = ~std::uint64_t{0}, .begin = 6},
                                                  .digest = 7,
                                                  .bytes = {.message = bytes, .bytes = *bytes},
                                                  .number = kLargest});
  const StreamFrame got = decode_stream_frame(std::make_shared<WireFrame>(pieces.joined()));
  EXPECT_EQ(got.kind, StreamKind::kChunk);
  EXPECT_EQ(std::vector({got.version, got.run.begin, got.number}),
            std::vector<std::int64_t>({5, 6, kLargest}));
  EXPECT_EQ(got.run.number, ~std::uint64_t{0});
  EXPECT_EQ(got.digest, 7u);
  EXPECT_TRUE(std::ranges::equal(got.bytes.bytes, *bytes));
}

template <typename Message>
WireFrame frame_with(MessageKind kind, const Message& message, std::uint32_t version = 0) {
  const std::string text = message.SerializeAsString();
  return frame_of(kind, [&](ByteWriter& to) {
    if (version != 0) to.fixed32(version);
    to.bytes(std::as_bytes(std::span(text)));
  });
}

TEST(ControlMessages, RefuseValuesOutOfRange) {
  const auto refuses_hello = [](const std::function<void(proto::Hello&)>& change) {
    proto::Hello hello;
    change(hello);
    const WireFrame frame = frame_with(MessageKind::kHello, hello, kWireVersion);
    EXPECT_THROW(WireMessage(frame).hello(), SystemError) << hello.ShortDebugString();
  };
  refuses_hello([](auto& hello) { hello.set_shard(-1); });
  refuses_hello([](auto& hello) { hello.set_shards(1'000'001); });
  refuses_hello([](auto& hello) { hello.set_rank(-1); });
  refuses_hello([](auto& hello) { hello.set_ranks(1 << 30); });
  refuses_hello([](auto& hello) { hello.set_begin(-1); });
  refuses_hello([](auto& hello) { hello.set_durable(-1); });
  refuses_hello([](auto& hello) { hello.set_requests(-1); });
  refuses_hello([](auto& hello) { hello.set_oldest(-1); });
  refuses_hello([](auto& hello) { hello.set_rows(static_cast<proto::Precision>(4)); });
  refuses_hello([](auto& hello) { hello.set_gradients(static_cast<proto::Precision>(-1)); });
  refuses_hello([](auto& hello) { hello.mutable_holder()->set_host("line\nend"); });
  refuses_hello([](auto& hello) { hello.mutable_holder()->set_machine(std::string(257, 'x')); });
  const auto refuses_request = [](const std::function<void(proto::Request&)>& change) {
    proto::Request request;
    change(request);
    const WireFrame frame = frame_with(MessageKind::kRead, request);
    EXPECT_THROW(WireMessage(frame).request(), SystemError) << request.ShortDebugString();
  };
  refuses_request([](auto& request) { request.set_version(-1); });
  refuses_request([](auto& request) { request.add_reads(); });  // no ids, not even their number
  refuses_request([](auto& request) { request.add_reads()->set_ids(std::string("\0more", 5)); });
  refuses_request([](auto& request) {
    request.add_reads()->set_ids(std::string(1, '\0'));
    request.mutable_reads(0)->set_feature(-1);
  });
  refuses_request([](auto& request) {
    request.add_reads()->set_ids(std::string(1, '\0'));
    request.mutable_reads(0)->set_version(-1);
  });
  proto::Status status;
  status.set_received(-1);
  const WireFrame frame = frame_with(MessageKind::kStatus, status);
  EXPECT_THROW(WireMessage(frame).status(), SystemError);
  proto::Welcome welcome;
  welcome.set_last_part(-1);
  const WireFrame other = frame_with(MessageKind::kWelcome, welcome);
  EXPECT_THROW(WireMessage(other).welcome(), SystemError);
}

// With checksums that fit, as a hostile sender would write them: an error or a well-formed message,
// no crash.
TEST(ControlMessages, SurviveChangedBytes) {
  const UserError error({.operation = "test.fail", .what = "no such row"});
  const Request request{.id = 3, .reads = {{.feature = 1, .version = 8, .ids = {3, 9, 700}}}};
  const std::vector<WireFrame> frames = {
      MessageBody::of(whole_hello()).frame(0),
      MessageBody::of(Welcome{.version = 1, .last_part = 2, .durable = 3}).frame(0),
      MessageBody::of(MessageKind::kRead, request).frame(0),
      MessageBody::failed(12, error).frame(0),
      MessageBody::refused(error).frame(0),
      MessageBody::of(Status{.durable = 4, .received = 5}).frame(0)};
  std::mt19937 random(5);
  int refused = 0;
  for (int trial = 0; trial < 30000; ++trial) {
    WireFrame frame = frames[random() % frames.size()];
    frame.resize(frame.size() - 8);
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n)
      frame[2 + random() % (frame.size() - 2)] = static_cast<std::byte>(random());
    if (trial % 3 == 0) frame.resize(2 + random() % (frame.size() - 2));
    seal_for_test(frame);
    const WireMessage message(frame);
    try {
      switch (message.kind()) {
        case MessageKind::kHello:
          message.hello();
          break;
        case MessageKind::kWelcome:
          message.welcome();
          break;
        case MessageKind::kStatus:
          message.status();
          break;
        case MessageKind::kRead:
          message.request();
          break;
        default:
          message.error();
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace strata
