// Tests the guarantees of every transport; processes are threads here.
#include "strata/transport/transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "strata/transport/faulty_transport.h"
#include "strata/transport/join.h"
#include "strata/transport/slow_link.h"

namespace strata {
namespace {

constexpr int kProcesses = 3;
constexpr std::chrono::seconds kLong{30};

using Transports = std::vector<std::unique_ptr<Transport>>;

Transports connect_all(std::unique_ptr<Transport> (*connect)(Bootstrap&)) {
  Transports transports(kProcesses);
  const int port = free_loopback_port();
  std::vector<std::jthread> threads;
  for (int process = 0; process < kProcesses; ++process)
    threads.emplace_back([&, process] {
      Bootstrap bootstrap({.process = process, .processes = kProcesses, .port = port},
                          {.seconds = 20, .secret = "the secret of this test"});
      transports[static_cast<std::size_t>(process)] = connect(bootstrap);
    });
  threads.clear();  // joins them
  return transports;
}

struct Received {
  int peer;
  int number;
  std::vector<char> payload;
};

// Records callbacks and waits for them.
class RecordingReceiver final : public TransportReceiver {
 public:
  void arrived(int peer, const MessageHeader& header, IncomingPayload& payload) override {
    int number = 0;
    std::uint64_t bytes = 0;
    std::memcpy(&number, header.data(), sizeof number);
    std::memcpy(&bytes, header.data() + sizeof number, sizeof bytes);
    Received received{peer, number, std::vector<char>(bytes)};
    if (before_payload) before_payload();
    if (bytes > 0 && drops_payloads == 0) {
      payload.receive(received.payload.data(), bytes / 2);  // received in two parts
      payload.receive(received.payload.data() + bytes / 2, bytes - bytes / 2);
    } else if (drops_payloads > 0) {
      --drops_payloads;
    }
    note([&] { messages.push_back(std::move(received)); });
  }
  void flushed(int peer) override {
    note([&] { ++flushes[peer]; });
  }
  void lost(int peer) override {
    note([&] { ++losses[peer]; });
  }
  bool await(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLong, condition);
  }
  int losses_of(int peer) {
    const std::lock_guard lock(mutex);
    return losses[peer];
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Received> messages;
  std::map<int, int> flushes, losses;
  int drops_payloads = 0;
  std::function<void()> before_payload;

 private:
  void note(const std::function<void()>& change) {
    const std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
};

std::vector<char> payload_of(int number, std::uint64_t bytes) {
  std::vector<char> payload(bytes);
  for (std::size_t i = 0; i < payload.size(); ++i)
    payload[i] = static_cast<char>(i * 31 + static_cast<std::size_t>(number));
  return payload;
}

OutgoingMessage message_of(int number, std::uint64_t bytes, bool last = false) {
  OutgoingMessage message;
  std::memcpy(message.header.data(), &number, sizeof number);
  std::memcpy(message.header.data() + sizeof number, &bytes, sizeof bytes);
  const auto payload = std::make_shared<const std::vector<char>>(payload_of(number, bytes));
  message.payload = payload->data();
  message.payload_bytes = bytes;
  message.owner = payload;
  message.last = last;
  return message;
}

struct Form {
  const char* name;
  std::function<Transports()> connect;
  bool tells_losses = true;
};

class Transported : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    if (std::string(GetParam().name).starts_with("Ucx") && missing_ucx())
      GTEST_SKIP() << missing_ucx()->reason;
    transports_ = GetParam().connect();
    for (int process = 0; process < kProcesses; ++process) {
      ASSERT_TRUE(transports_[process]);
      EXPECT_EQ(transports_[process]->process(), process);
      EXPECT_EQ(transports_[process]->processes(), kProcesses);
      transports_[process]->start(recorders_[process]);
    }
  }
  void TearDown() override {
    for (const auto& transport : transports_)
      if (transport) transport->abort();
  }
  RecordingReceiver recorders_[kProcesses];
  Transports transports_;
};

TEST_P(Transported, MessagesOfAnySizeArriveOnceAndWhole) {
  const std::uint64_t sizes[] = {0, 1, 700, 5000, 40000, 300000, 3000000};
  int number = 0;
  for (const std::uint64_t size : sizes)
    for (int to = 0; to < kProcesses; ++to, ++number)
      if (to != 1) transports_[1]->send(to, message_of(number, size));
  for (const int to : {0, 2}) {
    RecordingReceiver& recorder = recorders_[to];
    ASSERT_TRUE(recorder.await([&] { return recorder.messages.size() == std::size(sizes); }));
    std::map<int, std::vector<char>> got;
    for (const Received& received : recorder.messages) {
      EXPECT_EQ(received.peer, 1);
      got[received.number] = received.payload;
    }
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      const int expected = static_cast<int>(i) * kProcesses + to;
      ASSERT_TRUE(got.contains(expected));
      EXPECT_TRUE(got[expected] == payload_of(expected, sizes[i])) << sizes[i] << " bytes";
    }
  }
}

TEST_P(Transported, LastMessageArrivesAfterAllAndIsFlushed) {
  constexpr int kMessages = 40;
  for (int i = 0; i < kMessages; ++i)
    transports_[0]->send(2, message_of(i, i % 3 == 0 ? 500000 : 100));
  transports_[0]->send(2, message_of(kMessages, 10, /*last=*/true));
  ASSERT_TRUE(recorders_[0].await([&] { return recorders_[0].flushes[2] == 1; }));
  transports_[0]->abort();  // at once: flushed messages arrive nevertheless
  ASSERT_TRUE(recorders_[2].await(
      [&] { return recorders_[2].messages.size() == std::size_t{kMessages} + 1; }));
  EXPECT_EQ(recorders_[2].messages.back().number, kMessages);
  if (GetParam().tells_losses) {
    EXPECT_TRUE(recorders_[2].await([&] { return recorders_[2].losses[0] > 0; }));
  }
}

TEST_P(Transported, EndedPeerIsReportedLost) {
  if (!GetParam().tells_losses) GTEST_SKIP() << "UCX's shared memory reports it late, or never";
  transports_[1]->send(0, message_of(1, 100));
  ASSERT_TRUE(recorders_[0].await([&] { return recorders_[0].messages.size() == 1; }));
  transports_[0]->send(1, message_of(1, 100));
  ASSERT_TRUE(recorders_[1].await([&] { return recorders_[1].messages.size() == 1; }));
  transports_[1]->abort();
  EXPECT_TRUE(recorders_[0].await([&] { return recorders_[0].losses[1] > 0; }));
  EXPECT_EQ(recorders_[0].losses_of(2), 0);
  transports_[0]->send(1, message_of(1, 1000000));  // neither received nor awaited
  transports_[2]->send(0, message_of(2, 100));      // other processes continue
  EXPECT_TRUE(recorders_[0].await([&] { return recorders_[0].messages.size() == 2; }));
}

// More than the system's buffers hold.
TEST_P(Transported, PeerThatEndsWithinMessageIsReportedLost) {
  if (!GetParam().tells_losses) GTEST_SKIP() << "UCX's shared memory reports it late, or never";
  recorders_[0].before_payload = [&] { transports_[1]->abort(); };
  transports_[1]->send(0, message_of(1, 64 << 20));
  EXPECT_TRUE(recorders_[0].await([&] { return recorders_[0].losses[1] > 0; }));
  EXPECT_EQ(recorders_[0].losses_of(2), 0);
}

TEST_P(Transported, PayloadThatIsNotReceivedIsDropped) {
  recorders_[1].drops_payloads = 2;
  transports_[0]->send(1, message_of(0, 600));
  transports_[0]->send(1, message_of(1, 700000));
  ASSERT_TRUE(recorders_[1].await([&] { return recorders_[1].messages.size() == 2; }));
  transports_[0]->send(1, message_of(2, 600000));
  ASSERT_TRUE(recorders_[1].await([&] { return recorders_[1].messages.size() == 3; }));
  EXPECT_EQ(recorders_[1].messages[2].number, 2);
  EXPECT_TRUE(recorders_[1].messages[2].payload == payload_of(2, 600000));
}

TEST_P(Transported, MemoryOfSameHostPeersIsRead) {
  if (!transports_[0]->reads_in_place(1)) GTEST_SKIP() << "the system forbids it";
  const std::vector<char> memory = payload_of(7, 1 << 20);
  std::vector<char> read(memory.size());
  EXPECT_TRUE(transports_[0]->read(1, reinterpret_cast<std::uint64_t>(memory.data()), memory.size(),
                                   read.data()));
  EXPECT_TRUE(read == memory);
}

// A peer's last message contains the reason for its loss. The sender detects the loss first and
// leaves the report to the receiver, which may lag.
TEST(SocketTransport, ReportsLossAfterAllArrivedMessages) {
  std::promise<void> gate;
  RecordingReceiver recorders[kProcesses];
  recorders[0].before_payload = [opened = gate.get_future().share()] { opened.wait(); };
  const Transports transports = connect_all(&connect_sockets);
  for (int process = 0; process < kProcesses; ++process)
    transports[process]->start(recorders[process]);
  transports[1]->send(0, message_of(1, 100));
  transports[1]->send(0, message_of(2, 100, /*last=*/true));
  EXPECT_TRUE(recorders[1].await([&] { return recorders[1].flushes[0] == 1; }));
  transports[1]->abort();
  // The first message is rejected, the next fails; then the sender accepts no more.
  const auto is_taken = [&] {
    OutgoingMessage message = message_of(3, 100);
    const std::weak_ptr<const void> payload = message.owner;
    transports[0]->send(1, std::move(message));
    for (int i = 0; i < 500 && !payload.expired(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return payload.expired();
  };
  int sent = 0;
  while (sent < 100 && is_taken()) ++sent;
  EXPECT_LT(sent, 100);
  EXPECT_EQ(recorders[0].losses_of(1), 0);
  gate.set_value();
  EXPECT_TRUE(recorders[0].await([&] { return recorders[0].losses[1] > 0; }));
  EXPECT_EQ(recorders[0].messages.size(), 2u);
}

Transports limited(Transports transports, const LinkLimit& limit) {
  for (auto& transport : transports) transport = with_limit(std::move(transport), limit);
  return transports;
}

Transports connect_fakes() {
  static std::vector<std::unique_ptr<FaultyNetwork>> networks;
  networks.push_back(std::make_unique<FaultyNetwork>(
      kProcesses, Faults{.most_delay = std::chrono::microseconds(300)}));
  Transports transports;
  for (int i = 0; i < kProcesses; ++i) transports.push_back(networks.back()->transport(i));
  return transports;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Runs sends of process 0 over a limited link; returns when each message had arrived at process 1.
class OverSlowLink : public testing::Test {
 protected:
  void connect(const LinkLimit& limit) {
    transports_ = limited(connect_fakes(), limit);
    for (int process = 0; process < kProcesses; ++process)
      transports_[process]->start(recorders_[process]);
    begin_ = std::chrono::steady_clock::now();
  }
  double arrival_of(std::size_t messages, int process = 1) {
    EXPECT_TRUE(
        recorders_[process].await([&] { return recorders_[process].messages.size() >= messages; }));
    return seconds_since(begin_);
  }
  void TearDown() override {
    for (const auto& transport : transports_) transport->abort();
  }
  RecordingReceiver recorders_[kProcesses];
  Transports transports_;
  std::chrono::steady_clock::time_point begin_;
};

TEST_F(OverSlowLink, MessagesLeaveOneAfterAnotherAtTheBandwidth) {
  connect({.bytes_per_second = 1e6});
  transports_[0]->send(1, message_of(0, 50000 - kMessageHeaderBytes));
  transports_[0]->send(2, message_of(1, 50000 - kMessageHeaderBytes));  // the same link
  transports_[0]->send(1, message_of(2, 50000 - kMessageHeaderBytes));
  EXPECT_GE(arrival_of(1), 0.05);
  EXPECT_GE(arrival_of(1, 2), 0.10);
  EXPECT_GE(arrival_of(2), 0.15);
  EXPECT_LT(arrival_of(2), 3);
}

TEST_F(OverSlowLink, HeadersTakeTime) {
  connect({.bytes_per_second = 10 * kMessageHeaderBytes});
  for (int i = 0; i < 2; ++i) transports_[0]->send(1, message_of(i, 0));
  EXPECT_GE(arrival_of(2), 0.2);
}

TEST_F(OverSlowLink, LatenciesOfMessagesOverlap) {
  connect({.latency_seconds = 0.3});
  for (int i = 0; i < 20; ++i) transports_[0]->send(1, message_of(i, 100));
  EXPECT_GE(arrival_of(1), 0.3);
  EXPECT_LT(arrival_of(20), 3);  // one after another they would take 6 s
}

TEST_F(OverSlowLink, ProcessesSendAtTheSameTime) {
  connect({.bytes_per_second = 5e5});
  for (int i = 0; i < 10; ++i)
    for (const int from : {0, 2}) transports_[from]->send(1, message_of(i, 50000));
  EXPECT_GE(arrival_of(20), 1);
  EXPECT_LT(arrival_of(20), 1.9);  // over one link they would take 2 s
}

TEST_F(OverSlowLink, MemoryIsNotReadInPlace) {
  connect({.bytes_per_second = 1e9});
  EXPECT_FALSE(transports_[0]->reads_in_place(1));
}

TEST_F(OverSlowLink, AbortDropsWhatWaits) {
  connect({.bytes_per_second = 1e3});
  OutgoingMessage message = message_of(0, 1 << 20);  // would take 17 minutes
  const std::weak_ptr<const void> payload = message.owner;
  transports_[0]->send(1, std::move(message));
  transports_[0]->abort();
  EXPECT_TRUE(payload.expired());
  transports_[0]->send(1, message_of(1, 10));
  EXPECT_LT(seconds_since(begin_), 10);
}

TEST(SlowLink, UnlimitedTransportIsLeftAsItIs) {
  Transports transports = connect_fakes();
  const Transport* before = transports[0].get();
  EXPECT_EQ(with_limit(std::move(transports[0]), {}).get(), before);
}

Form fake() { return {"Fake", &connect_fakes}; }

INSTANTIATE_TEST_SUITE_P(
    Forms, Transported,
    testing::Values(fake(), Form{"Sockets", [] { return connect_all(&connect_sockets); }},
                    Form{"SlowSockets",
                         [] {
                           return limited(connect_all(&connect_sockets),
                                          {.bytes_per_second = 100e6, .latency_seconds = 0.01});
                         }},
                    Form{"UcxTcp",
                         [] {
                           ::setenv("UCX_TLS", "tcp", 1);
                           return connect_all(&connect_ucx);
                         }},
                    Form{"UcxSharedMemory",
                         [] {
                           // Otherwise UCX disables shared memory if it has to report lost peers.
                           ::setenv("UCX_TLS", "posix,cma", 1);
                           ::setenv("UCX_POSIX_ERROR_HANDLING", "y", 1);
                           return connect_all(&connect_ucx);
                         },
                         false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace strata
