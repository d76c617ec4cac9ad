/// Counts the updates of ids in memory of constant size. A count is never too low; it may be too
/// high for an id that shares all its counters with others.
///
/// Source   conservative updates: Estan & Varghese 2002.
/// Threads  count(): any, in parallel with add(). add(), restore(): one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace strata {

class CountingBloom {
 public:
  explicit CountingBloom(std::int64_t bytes) : bytes_(bytes) {
    if (bytes) counters_ = std::make_unique<std::atomic<std::uint8_t>[]>(bytes);
  }

  /// At most 255.
  int count(std::uint64_t hash) const {
    int least = 255;
    for (int k = 0; k < kCounters; ++k)
      least = std::min<int>(least, counter(hash, k).load(std::memory_order_relaxed));
    return least;
  }

  void add(std::uint64_t hash) {
    const int before = count(hash);
    if (before == 255) return;
    for (int k = 0; k < kCounters; ++k)
      if (counter(hash, k).load(std::memory_order_relaxed) == before)
        counter(hash, k).store(static_cast<std::uint8_t>(before + 1), std::memory_order_relaxed);
  }

  std::int64_t bytes() const { return bytes_; }
  std::uint8_t at(std::int64_t place) const {
    return counters_[place].load(std::memory_order_relaxed);
  }
  void set(std::int64_t place, std::uint8_t count) {
    counters_[place].store(count, std::memory_order_relaxed);
  }

 private:
  static constexpr int kCounters = 4;

  // Double hashing (Kirsch & Mitzenmacher 2006).
  std::atomic<std::uint8_t>& counter(std::uint64_t hash, int k) const {
    const std::uint64_t mixed =
        hash + static_cast<std::uint64_t>(k) * (hash << 32 | hash >> 32 | 1);
    return counters_[(mixed >> 32) * static_cast<std::uint64_t>(bytes_) >> 32];
  }

  std::int64_t bytes_ = 0;
  std::unique_ptr<std::atomic<std::uint8_t>[]> counters_;
};

}  // namespace strata
