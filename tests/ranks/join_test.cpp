// Tests bad starts: every process ends with one clear error.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "strata/comm/ranks.h"
#include "strata/transport/socket.h"
#include "tests/ranks/forked.h"

namespace strata {
namespace {

void nothing(Group&, MemoryAccount&) {}

void expect_error(const std::vector<Outcome>& outcomes, int code, const std::string& part) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, code) << outcome.text;
    EXPECT_NE(outcome.text.find(part), std::string::npos) << outcome.text;
  }
}

TEST(Join, RefusesRanksNotDivisibleByProcesses) {
  Forked forked(3, [](const ForkedProcess&) { run_ranks({.ranks = 8}, nothing); });
  expect_error(forked.wait(), 2, "a multiple of 3 ranks");
}

TEST(Join, NamesMissingProcess) {
  Forked forked(4, [](const ForkedProcess& self) {
    if (self.process() == 2) return;
    run_ranks({.ranks = 4, .join_seconds = self.process() == 0 ? 4.0 : 20.0}, nothing);
  });
  std::vector<Outcome> outcomes = forked.wait();
  outcomes.erase(outcomes.begin() + 2);
  expect_error(outcomes, 3, "process 2 of 4 missing at the start");
}

TEST(Join, DetectsMissingFirstProcess) {
  Forked forked(3, [](const ForkedProcess& self) {
    if (self.process() > 0) run_ranks({.ranks = 3, .join_seconds = 1}, nothing);
  });
  std::vector<Outcome> outcomes = forked.wait();
  outcomes.erase(outcomes.begin());
  expect_error(outcomes, 3, "no process listens at the rendezvous");
}

TEST(Join, RefusesMixedVersions) {
  Forked forked(3, [](const ForkedProcess& self) {
    run_ranks({.ranks = 3, .version = self.process() == 1 ? "0.0.9" : "0.1.0"}, nothing);
  });
  expect_error(forked.wait(), 2,
               "process 1 of 3: the processes differ in their version of Strata\n"
               "  expected  0.1.0 as process 0\n  got       0.0.9");
}

TEST(Join, RefusesDifferentRecipesAndShowsDifference) {
  Forked forked(2, [](const ForkedProcess& self) {
    run_ranks({.ranks = 2,
               .fingerprint = self.process() ? "model:\n  width: 32\n" : "model:\n  width: 64\n"},
              nothing);
  });
  expect_error(forked.wait(), 2, "width: 64 as process 0\n  got         width: 32");
}

TEST(Join, RefusesUnknownAddress) {
  Forked forked(2, [](const ForkedProcess&) {
    ::setenv("MASTER_ADDR", "no-such-host.invalid", 1);
    run_ranks({.ranks = 2}, nothing);
  });
  expect_error(forked.wait(30), 2, "the host has no address");
}

// Another program that has the port and never answers.
class Squatter {
 public:
  Squatter() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(descriptor_, 8), 0);
    ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
  }
  ~Squatter() { ::close(descriptor_); }
  int port = 0;

 private:
  int descriptor_;
};

TEST(Join, DetectsOccupiedPort) {
  const Squatter squatter;
  Forked forked(
      3, [](const ForkedProcess&) { run_ranks({.ranks = 3, .join_seconds = 1}, nothing); },
      squatter.port);
  expect_error(forked.wait(), 3, "at the rendezvous");
}

}  // namespace
}  // namespace strata
