/// Keeps blocks of a file in memory after they were read, so that other samples of a block need no
/// read. It keeps the first blocks of the file, as many as a limit allows: training draws samples
/// in random order, so any blocks serve as many of its reads.
///
/// Threads  any, at the same time; a kept block stays until the object is destroyed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace strata {

class KeptBlocks {
 public:
  /// Keeps blocks [0, count).
  explicit KeptBlocks(std::int64_t count)
      : count_(count), blocks_(new std::atomic<const char*>[static_cast<std::size_t>(count)]()) {}
  ~KeptBlocks() {
    for (std::int64_t i = 0; i < count_; ++i) delete[] blocks_[i].load(std::memory_order_relaxed);
  }
  KeptBlocks(const KeptBlocks&) = delete;
  KeptBlocks& operator=(const KeptBlocks&) = delete;

  bool keeps(std::int64_t number) const { return number < count_; }

  /// Fetches into the cache what find() reads.
  void prefetch(std::int64_t number) const {
    if (keeps(number)) __builtin_prefetch(&blocks_[number]);
  }

  /// Null: it was not read yet, or is not kept.
  const char* find(std::int64_t number) const {
    return keeps(number) ? blocks_[number].load(std::memory_order_acquire) : nullptr;
  }

  /// Copies the block, which is the same whichever thread read it.
  const char* keep(std::int64_t number, std::string_view bytes) {
    std::unique_ptr<char[]> block(new char[bytes.size()]);
    std::memcpy(block.get(), bytes.data(), bytes.size());
    const char* known = nullptr;
    if (blocks_[number].compare_exchange_strong(known, block.get(), std::memory_order_acq_rel))
      return block.release();
    return known;
  }

 private:
  std::int64_t count_;
  std::unique_ptr<std::atomic<const char*>[]> blocks_;
};

}  // namespace strata
