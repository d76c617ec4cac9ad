// When a message arrives is known when it is sent: after all earlier ones have left, plus the
// latency. So messages wait in one queue, in the order of their arrivals, and a thread that is late
// by some microseconds does not delay the messages after this one.
#include "strata/transport/slow_link.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class SlowLink final : public Transport {
 public:
  SlowLink(std::unique_ptr<Transport> transport, const LinkLimit& limit)
      : transport_(std::move(transport)), limit_(limit) {}
  ~SlowLink() override { stop(); }

  int process() const override { return transport_->process(); }
  int processes() const override { return transport_->processes(); }

  void start(TransportReceiver& receiver) override {
    transport_->start(receiver);
    try {
      thread_ = std::thread([this] { pass_on(); });
    } catch (const std::system_error& error) {
      transport_->abort();  // the receiver no longer exists once the error is thrown
      throw SystemError({.operation = "transport.start",
                         .where = "process " + std::to_string(process()),
                         .what = "the system starts no more threads",
                         .expected = "a thread for the messages of a slow link",
                         .got = error.what(),
                         .fix = "raise the limit (ulimit -u)"});
    }
  }

  void send(int peer, OutgoingMessage message) override {
    const auto bytes = static_cast<double>(kMessageHeaderBytes + message.payload_bytes);
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    free_ = std::max(free_, Clock::now()) + duration_of(limit_.seconds_of(bytes));
    waiting_.push_back({free_ + duration_of(limit_.latency_seconds), peer, std::move(message)});
    changed_.notify_all();
  }

  bool reads_in_place(int) const override { return false; }

  bool read(int, std::uint64_t, std::size_t, void*) override {
    STRATA_CHECK(false, "transport.read");
  }

  void abort() override {
    stop();
    transport_->abort();
  }

 private:
  struct Waiting {
    Clock::time_point arrival;
    int peer;
    OutgoingMessage message;
  };

  void stop() {
    std::deque<Waiting> dropped;  // freed without the lock
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      dropped.swap(waiting_);
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  void pass_on() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      if (waiting_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const Clock::time_point arrival = waiting_.front().arrival;
      if (Clock::now() < arrival) {
        changed_.wait_until(lock, arrival);
        continue;
      }
      Waiting first = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      transport_->send(first.peer, std::move(first.message));
      lock.lock();
    }
  }

  const std::unique_ptr<Transport> transport_;
  const LinkLimit limit_;
  std::thread thread_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;  // in the order of their arrivals
  Clock::time_point free_{};     // when the last message has left
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<Transport> with_limit(std::unique_ptr<Transport> transport,
                                      const LinkLimit& limit) {
  if (!limit.is_set()) return transport;
  return std::make_unique<SlowLink>(std::move(transport), limit);
}

}  // namespace strata
