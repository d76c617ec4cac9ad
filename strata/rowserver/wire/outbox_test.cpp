#include "strata/rowserver/wire/outbox.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace strata {
namespace {

// Notes what it is sent, and whether it was broken.
class NotedStream final : public FrameStream {
 public:
  bool send(const WireFrame& frame) override {
    const WireMessage message(frame);
    EXPECT_EQ(message.number(), static_cast<std::int64_t>(kinds.size()));
    kinds.push_back(message.kind());
    if (message.kind() == MessageKind::kStatus) {
      statuses.push_back(message.status());
      at_status();
    }
    return kinds.size() != breaks_at;
  }
  bool receive(WireFrame&) override { return false; }
  void cancel() override { cancelled = true; }
  bool alive() override { return !cancelled; }

  std::vector<MessageKind> kinds;
  std::vector<Status> statuses;
  std::function<void()> at_status = [] {};
  std::size_t breaks_at = 0;  // that message is lost; 0: none
  bool cancelled = false;
};

std::shared_ptr<const MessageBody> done(std::uint64_t id) {
  return std::make_shared<MessageBody>(MessageBody::done(id));
}

struct Sent : testing::Test {
  std::size_t bytes = 0;
  Outbox outbox{[this](std::size_t more) { bytes += more; }};
  NotedStream stream;
};

TEST_F(Sent, SendsStatusAfterAnswers) {
  outbox.push(done(1));
  outbox.note_received();
  outbox.note_received();
  outbox.set_durable(7);
  stream.at_status = [this] { outbox.close(); };
  outbox.send_all(stream);
  EXPECT_EQ(stream.kinds, (std::vector{MessageKind::kDone, MessageKind::kStatus}));
  EXPECT_EQ(stream.statuses.at(0).durable, 7);
  EXPECT_EQ(stream.statuses.at(0).received, 2);
  EXPECT_GT(bytes, 0u);
  EXPECT_TRUE(stream.cancelled);
}

// Who reads it closes the stream: of a cancelled one it might be lost.
TEST_F(Sent, LeavesClosingToThePeerAfterARefusal) {
  outbox.push(done(1));  // no thread receives it
  outbox.close(std::make_shared<MessageBody>(MessageBody::bye()));
  outbox.push(done(2));
  outbox.send_all(stream);
  EXPECT_EQ(stream.kinds, std::vector{MessageKind::kBye});
  EXPECT_FALSE(stream.cancelled);
}

TEST_F(Sent, EndsWhenTheStreamBreaks) {
  stream.breaks_at = 1;
  outbox.push(done(1));
  outbox.push(done(2));
  outbox.send_all(stream);
  EXPECT_EQ(stream.kinds.size(), 1u);
  EXPECT_EQ(bytes, 0u);
  EXPECT_TRUE(stream.cancelled);
}

}  // namespace
}  // namespace strata
