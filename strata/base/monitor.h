/// Keeps a state that threads change and wait for under one lock. Every change wakes all waiters.
/// All access holds the lock, so a thread between its check and its wait misses no change.
///
///     Monitor<std::deque<Task>> tasks;
///     tasks.change([&](auto& all) { all.push_back(task); });
///     const Task next = tasks.when([](const auto& all) { return !all.empty(); }, take_first);
///
/// Threads  any. Callbacks run under the lock and must not call the monitor.
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

  /// Waits until `ready`, then changes the state.
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

  /// Waits at most `most`. Returns whether the state is ready.
  template <typename Rep, typename Period, typename Ready>
  bool wait_for(std::chrono::duration<Rep, Period> most, const Ready& ready) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return ready(state_); });
  }

 private:
  // Notifies even if a change throws, and before the lock is released: a waiter may destroy the
  // monitor afterwards.
  struct Wake {
    std::condition_variable& waiters;
    ~Wake() { waiters.notify_all(); }
  };

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  State state_{};
};

}  // namespace strata
