// Tests how a process handles failures, its own and others', and which peers it then waits for,
// over a transport that the test controls.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>

#include "strata/base/errors.h"
#include "strata/comm/mailboxes.h"
#include "strata/comm/peer_protocol.h"

namespace strata {
namespace {

// No message arrives. As with sockets, a process that closes is notified of the loss of all others.
class MuteTransport final : public Transport {
 public:
  int process() const override { return 1; }
  int processes() const override { return 3; }
  void start(TransportReceiver& started) override { receiver = &started; }
  void send(int, OutgoingMessage) override {}
  bool reads_in_place(int) const override { return false; }
  bool read(int, std::uint64_t, std::size_t, void*) override { return false; }
  void abort() override {
    for (const int peer : {0, 2}) receiver->lost(peer);
  }
  TransportReceiver* receiver = nullptr;
};

// Process 1 of three, of two ranks each.
struct PeerFailures : testing::Test {
  Error error() {
    try {
      mailboxes.rethrow_failure();
    } catch (const Error& kept) {
      return kept;
    }
    throw std::logic_error("there is none");
  }
  // The others never leave.
  void leave() {
    std::future<void> left = std::async(std::launch::async, [&] { protocol.finish(); });
    if (left.wait_for(std::chrono::seconds(20)) == std::future_status::ready) return;
    ADD_FAILURE() << "it waits for those that don't leave";
    for (const int peer : {0, 2}) transport.receiver->lost(peer);
  }

  const Error own = UserError({.operation = "test.fail", .what = "on purpose"});
  Mailboxes mailboxes{6, 2, 2};
  MuteTransport transport;
  PeerProtocol protocol{
      mailboxes,
      transport,
      {.name_of = [](int rank) { return "rank " + std::to_string(rank); },
       .account_of = [](int) -> MemoryAccount& { throw std::logic_error("nothing arrives"); },
       .on_status = {},
       .shutdown_timeout = std::chrono::milliseconds(20)}};
};

TEST_F(PeerFailures, OwnRankFailureLetsProcessLeave) {
  protocol.fail(own, FailureOf::kRank);
  leave();
  EXPECT_EQ(error().text().what, "on purpose");
}

TEST_F(PeerFailures, RankFailurePrecedesResultingLosses) {
  protocol.fail(own, FailureOf::kRank);
  transport.receiver->lost(0);
  EXPECT_EQ(error().text().what, "on purpose");
  leave();
}

// The library detects first that a peer is lost, without knowing which.
TEST_F(PeerFailures, LossPrecedesResultingPeerFailure) {
  protocol.fail(own, FailureOf::kPeer);
  EXPECT_EQ(error().text().what, "on purpose");
  transport.receiver->lost(0);
  EXPECT_EQ(error().text().where, "rank 0, rank 1");
  leave();
}

TEST_F(PeerFailures, OtherFailuresAreReportedUnlessCausedLocally) {
  transport.receiver->lost(2);
  leave();  // and closes the connection to process 0
  EXPECT_EQ(error().text().where, "rank 4, rank 5");
}

}  // namespace
}  // namespace strata
