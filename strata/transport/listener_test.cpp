// Tests peers outside of the run: silent, slow, flooding, with a different secret, a thousand of
// them.
#include "strata/transport/listener.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

const HandshakeKey kKey{"a secret of the test's own", "test"};

std::vector<HostAddress> loopback(int port) { return resolve("127.0.0.1", port, Deadline::max()); }

Deadline in(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Server {
  Listener listener{listen_at(loopback(0)[0]), kKey};
  std::vector<HostAddress> address = loopback(listener.port());
  Socket connect() const { return connect_to(address, in(10)); }
};

// Connects like a process of the run: again and again, if the listener drops it.
HandshakeResult join(const Server& server, int process, const HandshakeKey& key, Socket& socket) {
  const Deadline deadline = in(30);
  while (Clock::now() < deadline) {
    socket = server.connect();
    const HandshakeResult result =
        socket ? shake_hands(socket, process, key, deadline) : HandshakeResult::kBroken;
    if (result != HandshakeResult::kBroken) return result;
    ::poll(nullptr, 0, 5);
  }
  return HandshakeResult::kBroken;
}

// A process of the run joins, whatever the other peers do.
void expect_joins(Server& server) {
  Socket socket;
  auto joined = std::async(std::launch::async, [&] { return join(server, 3, kKey, socket); });
  const auto arrival = server.listener.accept(in(30));
  EXPECT_EQ(joined.get(), HandshakeResult::kAccepted);
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->process, 3);
  char byte = 'x';
  EXPECT_TRUE(socket.send(&byte, 1));
  EXPECT_TRUE(arrival->socket.receive(&byte, 1, in(10)));
}

TEST(Listener, AcceptsProcessesOfTheRun) {
  Server server;
  expect_joins(server);
  EXPECT_EQ(server.listener.refused(), 0);
}

TEST(Listener, IsNotDelayedBySilentOrSlowPeers) {
  Server server;
  std::vector<Socket> peers;
  for (int i = 0; i < 40; ++i) {
    peers.push_back(server.connect());
    if (i % 2) peers.back().send("s", 1);
  }
  expect_joins(server);
}

TEST(Listener, EndsAtDeadlineUnderFlood) {
  Server server;
  std::atomic<bool> over = false;
  std::vector<std::jthread> flood;
  for (int i = 0; i < 2; ++i)
    flood.emplace_back([&] {
      while (!over) server.connect().send("GET / HTTP/1.1\r\n\r\n", 18);
    });
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(server.listener.accept(in(0.5)));
  EXPECT_LT(seconds_since(begin), 10);
  expect_joins(server);
  over = true;
}

TEST(Listener, BoundsMemoryOfExcessPeers) {
  Server server;
  std::vector<Socket> peers;
  for (int i = 0; i < 400; ++i) peers.push_back(server.connect());
  expect_joins(server);
  const auto is_closed = [](const Socket& peer) {
    char challenge[40], more;
    return !peer.receive(challenge, sizeof challenge, in(10)) ||
           (!peer.receive(&more, 1, in(0.2)) && errno != ETIMEDOUT);
  };
  EXPECT_TRUE(is_closed(peers.front()));
  EXPECT_FALSE(is_closed(peers.back()));
}

TEST(Listener, ReadsOnlyHandshakeOfUnauthenticatedPeer) {
  Server server;
  const Socket peer = server.connect();
  const std::string announced(64 << 20, '\xff');  // sizes of gigabytes, and endless bytes
  auto sent = std::async(std::launch::async,
                         [&] { return peer.send(announced.data(), announced.size(), in(20)); });
  expect_joins(server);
  EXPECT_FALSE(sent.get());  // the connection was closed after 76 bytes
}

TEST(Listener, RejectsDifferentSecretAndProvesItsOwn) {
  Server server;
  Socket first, second;
  auto other = std::async(std::launch::async, [&] {
    return join(server, 1, {"another secret of the test", "test"}, first);
  });
  auto elsewhere = std::async(std::launch::async, [&] {
    return join(server, 1, {kKey.secret, "another listener"}, second);
  });
  for (const Deadline deadline = in(30); server.listener.refused() < 2 && Clock::now() < deadline;)
    EXPECT_FALSE(server.listener.accept(in(0.1)));
  EXPECT_EQ(other.get(), HandshakeResult::kOtherSecret);
  EXPECT_EQ(elsewhere.get(), HandshakeResult::kOtherSecret);
  EXPECT_EQ(server.listener.refused(), 2);
  expect_joins(server);
}

// A listener that accepts every connection does not know the secret, and the process rejects it.
TEST(Listener, IsRejectedByProcessIfItDoesNotKnowSecret) {
  const Socket listening = listen_at(loopback(0)[0]);
  const Socket socket = connect_to(loopback(listening.port()), in(10));
  const Socket accepted(::accept(listening.get(), nullptr, nullptr));
  const std::string challenge = "strata01" + std::string(32, 'n');
  ASSERT_TRUE(accepted.send(challenge.data(), challenge.size()));
  auto result =
      std::async(std::launch::async, [&] { return shake_hands(socket, 1, kKey, in(10)); });
  char hello[76];
  ASSERT_TRUE(accepted.receive(hello, sizeof hello, in(10)));
  std::string answer = std::string(1, '\1') + std::string(32, 'p');
  std::memcpy(answer.data() + 1, hello + 44, 32);  // the process's own proof, sent back
  ASSERT_TRUE(accepted.send(answer.data(), answer.size()));
  EXPECT_EQ(result.get(), HandshakeResult::kOtherSecret);
}

// A recorded handshake is useless: every handshake has its own nonce.
TEST(Listener, RejectsReplayedHandshake) {
  Server server;
  // A relay records what a process sends.
  const Socket listening = listen_at(loopback(0)[0]);
  char challenge[40], hello[76];
  {
    auto joined = std::async(std::launch::async, [&] {
      const Socket socket = connect_to(loopback(listening.port()), in(10));
      return shake_hands(socket, 2, kKey, in(10));
    });
    const Socket from(::accept(listening.get(), nullptr, nullptr)), to = server.connect();
    auto arrived = std::async(std::launch::async, [&] { return server.listener.accept(in(10)); });
    ASSERT_TRUE(to.receive(challenge, sizeof challenge, in(10)));
    ASSERT_TRUE(from.send(challenge, sizeof challenge));
    ASSERT_TRUE(from.receive(hello, sizeof hello, in(10)));
    ASSERT_TRUE(to.send(hello, sizeof hello));
    char answer[33];
    ASSERT_TRUE(to.receive(answer, sizeof answer, in(10)));
    ASSERT_TRUE(from.send(answer, sizeof answer));
    EXPECT_TRUE(arrived.get());
    EXPECT_EQ(joined.get(), HandshakeResult::kAccepted);
  }
  const Socket again = server.connect();
  auto arrived = std::async(std::launch::async, [&] {
    bool any = false;
    for (const Deadline deadline = in(30);
         !any && server.listener.refused() == 0 && Clock::now() < deadline;)
      any = server.listener.accept(in(0.1)).has_value();
    return any;
  });
  ASSERT_TRUE(again.receive(challenge, sizeof challenge, in(10)));
  ASSERT_TRUE(again.send(hello, sizeof hello));
  EXPECT_FALSE(arrived.get());
  EXPECT_EQ(server.listener.refused(), 1);
}

TEST(Listener, StopsOnRequest) {
  Server server;
  const std::jthread stopping([&] {
    ::poll(nullptr, 0, 20);
    server.listener.stop();
  });
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(server.listener.accept(in(30)));
  EXPECT_LT(seconds_since(begin), 10);
}

}  // namespace
}  // namespace strata
