/// Simulates an asynchronous device in tests: work runs on another thread some time after
/// submission. Memory is freed in the order of a stream and then filled with NaN, so that a missing
/// wait shows as wrong bytes.
///
///     DelayedQueue queue(seed);
///     queue.give([=] { ... });          // like a kernel: knows addresses, keeps nothing alive
///     at::Tensor x = queue.empty({8}, at::kFloat);
///
/// Threads  as a Stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "strata/device/device.h"

namespace strata {

class DelayedQueue final : public StreamQueue {
 public:
  explicit DelayedQueue(std::uint64_t seed = 0,
                        std::chrono::microseconds most_delay = std::chrono::microseconds(200))
      : state_(std::make_shared<State>()) {
    thread_ = std::jthread([state = state_, seed, most_delay] { state->work(seed, most_delay); });
  }
  ~DelayedQueue() override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->stopped = true;
      state_->held = false;
    }
    state_->changed.notify_all();
  }

  void give(std::function<void()> work) { state_->give(std::move(work)); }

  Completion record(EventTime = EventTime::kUnknown) override {
    const auto mark = std::make_shared<Mark>();
    give([mark] { mark->happen(); });
    return Completion(mark);
  }
  void wait(const Completion& event) override {
    give([event] { event.wait(); });
  }
  void synchronize() override { record().wait(); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    give([to, from, bytes] { std::memcpy(to, from, bytes); });
  }
  void* native() override { return nullptr; }

  /// Holds submitted work until release().
  void hold() {
    const std::lock_guard lock(state_->mutex);
    state_->held = true;
  }
  void release() {
    {
      const std::lock_guard lock(state_->mutex);
      state_->held = false;
    }
    state_->changed.notify_all();
  }

  /// Every byte is NaN before it is written and after it is freed.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) {
    const std::int64_t bytes =
        c10::multiply_integers(sizes) * static_cast<std::int64_t>(c10::elementSize(dtype));
    void* const memory = state_->allocate(static_cast<std::size_t>(bytes));
    const auto free = [state = state_, bytes](void* address) {
      state->give(
          [address, bytes] { std::memset(address, kPoison, static_cast<std::size_t>(bytes)); });
    };
    return at::from_blob(memory, sizes, free, host_options(dtype));
  }

  /// Whether any of these queues, or this one, allocated the tensor's memory.
  static bool owns(const at::Tensor& x) { return owner_of(x) != nullptr; }
  bool has(const at::Tensor& x) const { return owner_of(x) == state_.get(); }

 private:
  static constexpr int kPoison = 0xff;
  struct State;

  static const State* owner_of(const at::Tensor& x) {
    const std::lock_guard lock(memory_mutex());
    const auto* const address = static_cast<const std::byte*>(x.const_data_ptr());
    const auto after = memory().upper_bound(address);
    if (after == memory().begin()) return nullptr;
    const auto& [begin, block] = *std::prev(after);
    return address < begin + block.bytes ? block.owner : nullptr;
  }

  class Mark final : public DeviceEvent {
   public:
    void happen() {
      {
        const std::lock_guard lock(mutex_);
        happened_ = true;
      }
      changed_.notify_all();
    }
    bool ready() const override {
      const std::lock_guard lock(mutex_);
      return happened_;
    }
    void wait() const override {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return happened_; });
    }
    const DeviceEvent* on_device() const override { return this; }

   private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool happened_ = false;
  };

  // Lives until the last tensor is freed: tensors outlive ranks.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    bool held = false, stopped = false;

    void give(std::function<void()> work) {
      {
        const std::lock_guard lock(mutex);
        if (stopped) return;
        tasks.push_back(std::move(work));
      }
      changed.notify_all();
    }
    void work(std::uint64_t seed, std::chrono::microseconds most_delay) {
      std::mt19937_64 random(seed);
      while (true) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return !held && (stopped || !tasks.empty()); });
        if (tasks.empty()) return;
        const std::function<void()> task = std::move(tasks.front());
        tasks.pop_front();
        lock.unlock();
        if (random() % 4 == 0)
          std::this_thread::sleep_for(most_delay * static_cast<int>(random() % 100) / 100);
        task();
      }
    }
    // Never returned to the system: a late read gets NaN and never bytes of another block.
    std::byte* allocate(std::size_t bytes) {
      auto* const memory = new std::byte[bytes + 1];
      std::memset(memory, kPoison, bytes);
      const std::lock_guard lock(memory_mutex());
      DelayedQueue::memory().emplace(memory, Block{bytes + 1, this});
      return memory;
    }
  };

  static std::mutex& memory_mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
  }
  struct Block {
    std::size_t bytes;
    const State* owner;
  };
  static std::map<const std::byte*, Block>& memory() {
    static auto& all = *new std::map<const std::byte*, Block>;
    return all;
  }

  std::shared_ptr<State> state_;
  std::jthread thread_;
};

}  // namespace strata
