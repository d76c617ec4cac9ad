/// Simulates a device with its own clock in tests: it performs submitted work when the test calls
/// perform() or a thread waits, and each piece of work takes as long as the test states.
///
/// Threads  one at a time.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "strata/device/device.h"

namespace strata {

class TimedQueue final : public StreamQueue {
 public:
  explicit TimedQueue(double seconds_a_copy = 0) : seconds_a_copy_(seconds_a_copy) {}

  /// Submits work of so many seconds.
  void give(double seconds) {
    enqueued_.emplace_back([this, seconds] { clock_ += seconds; });
  }
  void perform() {
    for (const std::function<void()>& work : std::exchange(enqueued_, {})) work();
  }
  /// Like the capture of a graph: events must not be queried.
  void record_from_now_on(bool on) { recording_ = on; }

  int recorded() const { return recorded_; }  ///< events so far
  int waits() const { return waits_; }        ///< for device events
  int copies() const { return copies_; }

  Completion record(EventTime time) override {
    ++recorded_;
    const auto event = std::make_shared<Mark>(*this, time);
    enqueued_.emplace_back([this, event] { event->happen(clock_); });
    return Completion(event);
  }
  void wait(const Completion& event) override {
    if (!event.source()) return;
    if (!on_device(event)) return event.wait();
    ++waits_;
    enqueued_.emplace_back([event] { event.wait(); });
  }
  void synchronize() override { perform(); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    ++copies_;
    enqueued_.emplace_back([=, this] {
      std::memcpy(to, from, bytes);
      clock_ += seconds_a_copy_;
    });
  }
  void* native() override { return nullptr; }
  bool recording() const override { return recording_; }

 private:
  class Mark final : public DeviceEvent {
   public:
    Mark(TimedQueue& queue, EventTime time) : queue_(queue), time_(time) {}
    bool ready() const override {
      EXPECT_FALSE(queue_.recording_) << "an event of a recording was requested";
      return happened_;
    }
    void wait() const override {
      if (!happened_) queue_.perform();
      ASSERT_TRUE(happened_);
    }
    double seconds_since(const DeviceEvent& earlier) const override {
      const auto& other = dynamic_cast<const Mark&>(earlier);
      EXPECT_EQ(time_, EventTime::kKnown);
      EXPECT_EQ(other.time_, EventTime::kKnown);
      return seconds_ - other.seconds_;
    }
    const DeviceEvent* on_device() const override { return this; }
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

  std::vector<std::function<void()>> enqueued_;
  std::atomic<int> recorded_ = 0, waits_ = 0, copies_ = 0;
  bool recording_ = false;
  double seconds_a_copy_;
  double clock_ = 100;
};

}  // namespace strata
