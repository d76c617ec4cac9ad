// Tests transports on a system that starts no more threads: this program's pthread_create()
// precedes the system's and fails on request. Sanitizers have their own.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/transport/join.h"
#include "strata/transport/transport.h"

#ifndef STRATA_SANITIZED

namespace {

std::atomic<int> threads_left = -1;  // threads that may still start; -1: any number

}  // namespace

extern "C" int pthread_create(pthread_t* __restrict thread, const pthread_attr_t* __restrict with,
                              void* (*run)(void*), void* __restrict argument) noexcept {
  static const auto system =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left >= 0 && threads_left.fetch_sub(1) <= 0) {
    threads_left = 0;
    return EAGAIN;
  }
  return system(thread, with, run, argument);
}

namespace strata {
namespace {

constexpr int kProcesses = 3;

class CountingReceiver final : public TransportReceiver {
 public:
  void arrived(int, const MessageHeader&, IncomingPayload&) override { ++arrivals; }
  void flushed(int) override {}
  void lost(int peer) override {
    const std::lock_guard lock(mutex_);
    lost_.at(static_cast<std::size_t>(peer)) = true;
    changed_.notify_all();
  }
  bool await_loss(int peer) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return lost_.at(static_cast<std::size_t>(peer)); });
  }
  std::atomic<int> arrivals = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> lost_ = std::vector<bool>(kProcesses);
};

TEST(ThreadStart, FailedStartEndsStartedThreads) {
  for (int started = 0; started < 2 * (kProcesses - 1); ++started) {
    std::vector<std::unique_ptr<Transport>> transports(kProcesses);
    const int port = free_loopback_port();
    {
      std::vector<std::jthread> joining;
      for (int process = 0; process < kProcesses; ++process)
        joining.emplace_back([&, process] {
          Bootstrap bootstrap({.process = process, .processes = kProcesses, .port = port},
                              {.seconds = 20, .secret = "the secret of this test"});
          transports[static_cast<std::size_t>(process)] = connect_sockets(bootstrap);
        });
    }
    CountingReceiver receivers[kProcesses];
    for (int process = 1; process < kProcesses; ++process)
      transports[static_cast<std::size_t>(process)]->start(receivers[process]);
    threads_left = started;
    std::string error = "none";
    try {
      transports[0]->start(receivers[0]);
    } catch (const SystemError& refused) {
      error = refused.text().what;
      EXPECT_NE(refused.text().fix.find("ulimit -u"), std::string::npos) << refused.what();
    }
    threads_left = -1;
    EXPECT_EQ(error, "the system starts no more threads") << started;
    // After a failed start the caller destroys the receiver.
    for (int process = 1; process < kProcesses; ++process) {
      EXPECT_TRUE(receivers[process].await_loss(0)) << started;
      transports[static_cast<std::size_t>(process)]->send(0, OutgoingMessage{});
    }
    for (int process = kProcesses; process-- > 0;)
      transports[static_cast<std::size_t>(process)].reset();
    EXPECT_EQ(receivers[0].arrivals, 0) << started;
  }
}

}  // namespace
}  // namespace strata

#endif
