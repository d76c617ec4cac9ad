// Tests the start of a run whose processes are threads, with and without unauthenticated peers.
#include "strata/transport/join.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <sstream>
#include <thread>

#include "strata/base/errors.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

struct Result {
  std::string error;
  ErrorKind kind = ErrorKind::kInternal;
  std::vector<std::string> gathered;
  double seconds = 0;
};

struct Start {
  int processes = 3;
  int port = free_loopback_port();
  std::string host = "127.0.0.1";
  double seconds = 20;
  std::function<void(int process, Rendezvous&, JoinOptions&)> change;  ///< may be empty
};

std::vector<Result> join_all(const Start& start) {
  std::vector<Result> results(static_cast<std::size_t>(start.processes));
  std::vector<std::jthread> threads;
  for (int process = 0; process < start.processes; ++process)
    threads.emplace_back([&, process] {
      const Clock::time_point begin = Clock::now();
      Result& result = results[static_cast<std::size_t>(process)];
      Rendezvous rendezvous{
          .process = process, .processes = start.processes, .host = start.host, .port = start.port};
      JoinOptions options{.version = "1", .fingerprint = "same", .seconds = start.seconds};
      if (start.change) start.change(process, rendezvous, options);
      try {
        Bootstrap bootstrap(rendezvous, options);
        result.gathered = bootstrap.all_gather("text of " + std::to_string(process));
      } catch (const Error& error) {
        result.error = error.what();
        result.kind = error.kind();
      }
      result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    });
  threads.clear();
  return results;
}

void expect_joined(const Start& start) {
  const std::vector<Result> results = join_all(start);
  std::vector<std::string> expected;
  for (int i = 0; i < start.processes; ++i) expected.push_back("text of " + std::to_string(i));
  for (const Result& result : results) {
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.gathered, expected);
  }
}

void expect_all(const std::vector<Result>& results, ErrorKind kind, const std::string& part) {
  for (const Result& result : results) {
    EXPECT_EQ(result.kind, kind) << result.error;
    EXPECT_NE(result.error.find(part), std::string::npos) << result.error;
  }
}

TEST(Join, GathersTextsOfAllProcesses) {
  expect_joined({});
  expect_joined({.host = "localhost"});
  expect_joined({.processes = 9, .change = [](int, Rendezvous&, JoinOptions& options) {
                   options.secret = "the secret of this run";
                 }});
}

TEST(Join, RequiresSecretForOtherMachine) {
  const Start start{.host = "192.0.2.1"};  // unassigned, by RFC 5737
  expect_all(join_all(start), ErrorKind::kUser, "STRATA_SECRET=$(openssl rand -hex 32)");
}

TEST(Join, RejectsDifferentSecret) {
  const std::vector<Result> results =
      join_all({.change = [](int process, Rendezvous&, JoinOptions& options) {
        options.seconds = process == 0 ? 4 : 20;
        options.secret = process == 2 ? "a secret of another run" : "the secret of this run";
      }});
  EXPECT_EQ(results[2].kind, ErrorKind::kUser);
  EXPECT_NE(results[2].error.find("do not have the same secret"), std::string::npos);
  EXPECT_EQ(results[2].error.find("another run"), results[2].error.rfind("another run"))
      << "the secret is shown: " << results[2].error;
  for (const int process : {0, 1}) {
    EXPECT_NE(results[process].error.find("process 2 of 3 missing at the start"), std::string::npos)
        << results[process].error;
    EXPECT_NE(results[process].error.find("1 connections with another secret"), std::string::npos)
        << results[process].error;
  }
}

TEST(Join, RejectsSecretThatOnlySomeHave) {
  const std::vector<Result> results =
      join_all({.processes = 2, .change = [](int process, Rendezvous&, JoinOptions& options) {
                  options.seconds = process == 0 ? 4 : 20;
                  if (process == 0) options.secret = "the secret of this run";
                }});
  EXPECT_NE(results[1].error.find("none here"), std::string::npos) << results[1].error;
}

TEST(Join, ReportsDuplicateProcessNumberToAll) {
  expect_all(join_all({.change =
                           [](int process, Rendezvous& rendezvous, JoinOptions&) {
                             if (process == 2) rendezvous.process = 1;
                           }}),
             ErrorKind::kUser, "two processes have the same number");
}

// The error with which a process joins; "": none.
std::string join_of(int process, int processes, int port, const std::string& fingerprint) {
  try {
    Bootstrap({.process = process, .processes = processes, .host = "127.0.0.1", .port = port},
              {.version = "1", .fingerprint = fingerprint, .seconds = 20});
  } catch (const Error& error) {
    return error.text().what;
  }
  return "";
}

TEST(Join, ReportsDuplicateProcessNumberToLaterProcesses) {
  const std::string expected = "two processes have the same number";
  const int port = free_loopback_port();
  const auto start = [&](int process) {
    return std::async(std::launch::async, [=] { return join_of(process, 4, port, "same"); });
  };
  auto server = start(0), first = start(1), second = start(1);
  EXPECT_EQ(first.get(), expected);
  EXPECT_EQ(second.get(), expected);
  EXPECT_EQ(start(3).get(), expected);
  EXPECT_EQ(server.get(), expected);
}

// Process 0 has sent its reason and ended before the other process sends its texts.
TEST(Join, ReportsWhyProcessZeroEnded) {
  Socket socket = listen_at(resolve("127.0.0.1", 0, Deadline::max())[0]);
  const int port = socket.port(), few = 4096;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
  Listener listener(std::move(socket), {"", "join"});
  auto joined = std::async(std::launch::async,
                           [&] { return join_of(1, 2, port, std::string((4 << 20) - 100, 'x')); });
  {
    const auto arrival = listener.accept(Clock::now() + std::chrono::seconds(20));
    ASSERT_TRUE(arrival);
    const std::vector<std::byte> bytes =
        write_failure(UserError({.operation = "test.fail", .what = "on purpose"}), 0);
    EXPECT_TRUE(send_texts(arrival->socket,
                           {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())},
                           Clock::now() + std::chrono::seconds(20)));
  }
  EXPECT_EQ(joined.get(), "on purpose");
}

TEST(Join, ReportsDifferingRecipeToAll) {
  expect_all(join_all({.change =
                           [](int process, Rendezvous&, JoinOptions& options) {
                             options.fingerprint = process == 1 ? "a: 1\nb: 3" : "a: 1\nb: 2";
                           }}),
             ErrorKind::kUser, "b: 2 as process 0\n  got       b: 3");
}

TEST(Join, RejectsRecipeOfMegabytes) {
  const std::vector<Result> results =
      join_all({.processes = 1, .change = [](int, Rendezvous&, JoinOptions& options) {
                  options.fingerprint.assign(5 << 20, 'x');
                }});
  expect_all(results, ErrorKind::kUser, "the recipe is too long");
}

TEST(Join, ListensOnLoopbackOnlyIfAllAreLocal) {
  // /proc/net/tcp: local address and port in hexadecimal, state 0A: listens.
  const auto listens = [](int port, const std::string& address) {
    char suffix[8];
    std::snprintf(suffix, sizeof suffix, ":%04X", port);
    for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
      std::ifstream table(file);
      std::string number, local, remote, state;
      for (std::string line; std::getline(table, line);) {
        std::istringstream(line) >> number >> local >> remote >> state;
        if (state == "0A" && local == address + suffix) return true;
      }
    }
    return false;
  };
  const std::string any = "00000000000000000000000000000000", loopback = "0100007F";
  struct Case {
    const char* host;
    const char* secret;
    bool loopback;
  };
  for (const Case& c : {Case{"127.0.0.1", "", true}, Case{"127.0.0.1", "the secret of it", true},
                        Case{"0.0.0.0", "the secret of it", false}}) {
    Rendezvous rendezvous{.processes = 2, .host = c.host, .port = free_loopback_port()};
    std::jthread joining(
        [&] { EXPECT_NO_THROW(Bootstrap(rendezvous, {.seconds = 20, .secret = c.secret})); });
    bool at_loopback = false, everywhere = false;
    for (int i = 0; i < 900 && !at_loopback && !everywhere; ++i) {
      ::poll(nullptr, 0, 20);
      at_loopback = listens(rendezvous.port, loopback);
      everywhere = listens(rendezvous.port, any) || listens(rendezvous.port, "00000000");
    }
    EXPECT_EQ(at_loopback, c.loopback) << c.host;
    EXPECT_EQ(everywhere, !c.loopback) << c.host;
    Rendezvous second = rendezvous;
    second.process = 1;
    second.host = "127.0.0.1";
    EXPECT_NO_THROW(Bootstrap(second, {.seconds = 20, .secret = c.secret}));
  }
}

// Unauthenticated peers connect to the rendezvous before and while the processes join.

void expect_joined_among(int peers, const std::function<void(const Socket& socket)>& behave) {
  Start start{.processes = 4};
  std::atomic<bool> over = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < peers; ++i)
    threads.emplace_back([&] {
      std::vector<Socket> kept;
      while (!over) {
        Socket socket = connect_to(resolve("127.0.0.1", start.port, Deadline::max()),
                                   Clock::now() + std::chrono::seconds(1));
        if (!socket) {
          ::poll(nullptr, 0, 2);
          continue;
        }
        behave(socket);
        kept.push_back(std::move(socket));
        if (kept.size() > 20) kept.erase(kept.begin());
      }
    });
  // The first joins at once, the last one late.
  start.change = [](int process, Rendezvous&, JoinOptions&) { ::poll(nullptr, 0, 150 * process); };
  expect_joined(start);
  over = true;
}

TEST(Join, SurvivesPeersThatSendOneByteAndStay) {
  expect_joined_among(2, [](const Socket& socket) { socket.send("s", 1); });
}

TEST(Join, IsNotDelayedBySilentPeers) {
  expect_joined_among(2, [](const Socket&) {});
}

TEST(Join, SurvivesPeersThatAnnounceGigabytes) {
  const std::string gigabytes(1 << 20, '\xff');
  expect_joined_among(2, [&](const Socket& socket) {
    socket.send(gigabytes.data(), gigabytes.size(), Clock::now() + std::chrono::seconds(1));
  });
}

TEST(Join, EndsAtDeadlineUnderFlood) {
  const Start start{.processes = 2, .seconds = 1};
  std::atomic<bool> over = false;
  std::jthread flood([&] {
    while (!over)
      connect_to(resolve("127.0.0.1", start.port, Deadline::max()), Clock::now()).send("x", 1);
  });
  Rendezvous alone{.processes = 2, .host = "127.0.0.1", .port = start.port};
  const Clock::time_point begin = Clock::now();
  EXPECT_THROW(Bootstrap(alone, {.seconds = 1}), SystemError);
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 10);
  over = true;
}

// A process of the run may hang; the join then ends at its deadline and names it.
TEST(Join, NamesProcessThatIsSilentAfterItsProof) {
  const int port = free_loopback_port();
  std::jthread silent([&] {
    const Deadline deadline = Clock::now() + std::chrono::seconds(20);
    Socket socket;
    while (!socket && Clock::now() < deadline)
      socket = connect_to(resolve("127.0.0.1", port, deadline), deadline);
    EXPECT_EQ(shake_hands(socket, 1, {"", "join"}, deadline), HandshakeResult::kAccepted);
    char byte;
    socket.receive(&byte, 1, deadline);  // until the other side has closed
  });
  try {
    Bootstrap({.processes = 2, .host = "127.0.0.1", .port = port}, {.seconds = 4});
    ADD_FAILURE() << "joined";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.text().where, "process 1 of 2");
    EXPECT_EQ(error.text().what, "lost or silent at the start");
  }
}

TEST(Join, EndsAtDeadlineIfProcessZeroIsSilent) {
  const Socket silent = listen_at(resolve("127.0.0.1", 0, Deadline::max())[0]);
  const Rendezvous rendezvous{
      .process = 1, .processes = 2, .host = "127.0.0.1", .port = silent.port()};
  const Clock::time_point begin = Clock::now();
  try {
    Bootstrap(rendezvous, {.seconds = 3});
    ADD_FAILURE() << "joined";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.text().what, "process 0 does not answer at the rendezvous");
  }
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 10);
}

TEST(Texts, MemoryGrowsWithReceivedNotAnnouncedBytes) {
  const Socket listening = listen_at(resolve("127.0.0.1", 0, Deadline::max())[0]);
  const auto address = resolve("127.0.0.1", listening.port(), Deadline::max());
  const auto received = [&](const std::vector<std::uint32_t>& words, std::size_t most) {
    const Deadline deadline = Clock::now() + std::chrono::seconds(5);
    const Socket from = connect_to(address, deadline);
    const Socket to(::accept(listening.get(), nullptr, nullptr));
    from.send(words.data(), words.size() * sizeof(std::uint32_t));
    from.shut_down();
    return receive_texts(to, most, deadline);
  };
  EXPECT_FALSE(received({1, 0xffffffff}, 4 << 20));
  EXPECT_FALSE(received({0xffffffff, 0}, 4 << 20));
  EXPECT_FALSE(received({1, 0x7fffffff}, std::size_t{1} << 40));  // announced, not sent
  EXPECT_EQ(received({1, 4, 0x64636261}, 4), Texts({"abcd"}));
  EXPECT_FALSE(received({1, 4, 0x64636261}, 3));
}

}  // namespace
}  // namespace strata
