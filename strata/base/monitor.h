/// Keeps a state that threads change and wait for, under one lock. Every change wakes those who wait, and nothing
/// reaches the state but under the lock: whoever has looked and does not wait yet misses no change.
///
///     Monitor<std::deque<Task>> tasks;
///     tasks.change([&](auto& all) { all.push_back(task); });
///     const Task next = tasks.when([](const auto& all) { return !all.empty(); }, take_first);
///
/// Threads  any. What a call is given runs under the lock, and calls nothing of the monitor.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace strata {

template <typename State>
class Monitor {
 public:
  Monitor() = default;
  explicit Monitor(State state) : state_(std::move(state)) {}

  template <typename Look>
  auto look(const Look& look) const {
    const std::lock_guard lock(mutex_);
    return look(state_);
  }

  template <typename Change>
  auto change(const Change& change) {
    const std::lock_guard lock(mutex_);
    const Wake wake{changed_};
    return change(state_);
  }

  /// Waits until the state is ready, and changes it then.
  template <typename Ready, typename Change>
  auto when(const Ready& ready, const Change& change) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready(std::as_const(state_)); });
    const Wake wake{changed_};
    return change(state_);
  }

  template <typename Ready>
  void wait(const Ready& ready) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready(state_); });
  }

  /// At most so long: whether it is ready.
  template <typename Rep, typename Period, typename Ready>
  bool wait_for(std::chrono::duration<Rep, Period> most, const Ready& ready) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return ready(state_); });
  }

 private:
  // When a change throws, too; before the lock goes, for one who waits may end the monitor when it has gone.
  struct Wake {
    std::condition_variable& waiters;
    ~Wake() { waiters.notify_all(); }
  };

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  State state_{};
};

}  // namespace strata
