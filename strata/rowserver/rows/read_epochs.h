/// Keeps memory alive until all readers that may access it have finished. Readers announce
/// themselves without waiting; the writer frees replaced memory two epochs later.
///
/// Source   epoch-based reclamation (Fraser, "Practical lock-freedom", 2004).
/// Threads  Reading: any; retire() and collect(): one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace strata {

class ReadEpochs {
  struct alignas(64) Count {
    std::array<std::atomic<std::int64_t>, 2> active = {};  // by parity of the epoch
  };

 public:
  ~ReadEpochs() {
    for (auto& freed : waiting_)
      for (void* memory : freed) free_(memory);
  }
  explicit ReadEpochs(void (*free_memory)(void*)) : free_(free_memory) {}

  /// While it lives, memory that is reachable now is not freed.
  class Reading {
   public:
    explicit Reading(const ReadEpochs& epochs) : count_(epochs.count_of_thread()) {
      for (;;) {
        const std::uint64_t epoch = epochs.epoch_.load();
        parity_ = epoch % 2;
        count_.active[parity_].fetch_add(1);
        if (epochs.epoch_.load() == epoch) return;
        count_.active[parity_].fetch_sub(1);  // announced in an epoch that has ended
      }
    }
    ~Reading() { count_.active[parity_].fetch_sub(1, std::memory_order_release); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    Count& count_;
    std::size_t parity_ = 0;
  };

  /// `memory` is unreachable for readers that start from now on.
  void retire(void* memory) {
    waiting_[epoch_.load(std::memory_order_relaxed) % 2].push_back(memory);
    collect();
  }

  /// Frees memory that no reader can access; never waits.
  void collect() {
    const std::uint64_t epoch = epoch_.load(std::memory_order_relaxed);
    const std::size_t before = (epoch + 1) % 2;
    for (const Count& count : counts_)
      if (count.active[before].load() != 0) return;
    for (void* memory : waiting_[before]) free_(memory);
    waiting_[before].clear();
    epoch_.store(epoch + 1);
  }

 private:
  Count& count_of_thread() const {
    static thread_local const std::size_t hash =
        std::hash<std::thread::id>()(std::this_thread::get_id());
    return counts_[hash / 64 % counts_.size()];
  }

  void (*free_)(void*);
  std::atomic<std::uint64_t> epoch_ = 0;
  mutable std::array<Count, 8> counts_;
  std::array<std::vector<void*>, 2> waiting_;  // by parity of the epoch in which they were retired
};

}  // namespace strata
