/// Stands for a device with a clock of its own, in tests: it does what it was given when the test says so, or
/// somebody waits, and each piece of work takes as long as the test says.
///
/// Threads  one.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/device.h"

namespace strata {

class TimedQueue final : public StreamQueue {
 public:
  /// Work of so many seconds.
  void give(double seconds) {
    given_.emplace_back([this, seconds] { clock_ += seconds; });
  }
  void perform() {
    for (const std::function<void()>& work : std::exchange(given_, {})) work();
  }
  int recorded() const { return recorded_; }  ///< events, so far

  Event record(EventTime time) override {
    ++recorded_;
    const auto event = std::make_shared<Mark>(*this, time);
    given_.emplace_back([this, event] { event->happen(clock_); });
    return Event(event);
  }
  void wait(const Event& event) override {
    given_.emplace_back([event] { event.synchronize(); });
  }
  void synchronize() override { perform(); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    given_.emplace_back([=] { std::memcpy(to, from, bytes); });
  }
  void* native() override { return nullptr; }

 private:
  class Mark final : public PendingEvent {
   public:
    Mark(TimedQueue& queue, EventTime time) : queue_(queue), time_(time) {}
    bool query() const override { return happened_; }
    void synchronize() const override {
      if (!happened_) queue_.perform();
    }
    double seconds_since(const PendingEvent& earlier) const override {
      const auto& other = dynamic_cast<const Mark&>(earlier);
      STRATA_CHECK(time_ == EventTime::kKnown && other.time_ == EventTime::kKnown,
                   "device.timed_queue");
      return seconds_ - other.seconds_;
    }
    const PendingEvent* on_device() const override { return this; }
    void happen(double seconds) {
      happened_ = true;
      seconds_ = seconds;
    }

   private:
    TimedQueue& queue_;
    EventTime time_;
    bool happened_ = false;
    double seconds_ = 0;
  };

  std::vector<std::function<void()>> given_;
  int recorded_ = 0;
  double clock_ = 100;
};

}  // namespace strata
