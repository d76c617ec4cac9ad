/// Stores rows of one size. Slot n has a fixed address, also when the memory grows. Threads read
/// whole rows while one thread writes.
///
/// Rows fill the slots [0, size) without gaps: the last row moves to the place of a removed row.
/// Memory is allocated in extents of doubling size whose pages use no memory until they are
/// touched, so growth copies nothing.
///
/// How a row is read in parallel with its writer (a sequence lock per row; Boehm, "Can seqlocks get
/// along with programming language memory models?", MSPC 2012):
///   1. The version is odd while id and values change, and 0 where there is no row.
///   2. It increases with every update of the row; a copy has the version of the original.
///   3. A reader reads version and id before and after the values. If both are unchanged and the
///      version is even, the values belong to them. A different row with the same version has
///      another id, because the writer changes the id before the values.
///   4. Only the writer accesses states and uses.
///
/// Threads  append(), pop(), trim(): one at a time; row() and reading: any, also of removed slots.
/// Errors   SystemError: no more address space. UserError: more than 2^31 rows.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "strata/rowserver/rows/row_layout.h"

namespace strata {

/// Rows of one feature in one shard.
inline constexpr std::uint32_t kMostRows = 1u << 31;

/// The bytes of one row, aligned to 4.
class RowBytes {
 public:
  explicit RowBytes(std::byte* row) : row_(row) {}

  std::uint64_t id() const {
    return word(0).load(std::memory_order_relaxed) |
           std::uint64_t{word(1).load(std::memory_order_relaxed)} << 32;
  }
  std::uint32_t version() const { return word(2).load(std::memory_order_relaxed); }
  std::uint32_t uses() const { return plain(3); }  // writer only
  void set_uses(std::uint32_t uses) const { plain(3) = uses; }

  std::byte* values() const { return row_ + kRowHeaderBytes; }
  float* states(int value_bytes) const {
    return reinterpret_cast<float*>(row_ + kRowHeaderBytes + value_bytes);
  }

  enum class Copied : std::uint8_t { kYes, kOtherRow, kBusy };

  /// Copies the values of row `wanted` if they are consistent. `values` has room for value_bytes.
  Copied copy(std::uint64_t wanted, void* values, int value_bytes) const {
    const std::uint32_t before = word(2).load(std::memory_order_acquire);
    const std::uint64_t first = id();
    if (before == 0 || (before % 2 == 0 && first != wanted)) return Copied::kOtherRow;
    if (before % 2 != 0) return Copied::kBusy;
    load_words(row_ + kRowHeaderBytes, values, value_bytes);
    std::atomic_thread_fence(std::memory_order_acquire);
    return id() == wanted && version() == before ? Copied::kYes : Copied::kBusy;
  }

  /// Replaces id, version and values while other threads read.
  void write(std::uint64_t new_id, std::uint32_t new_version, const void* values,
             int value_bytes) const {
    word(2).store(version() | 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    word(0).store(static_cast<std::uint32_t>(new_id), std::memory_order_relaxed);
    word(1).store(static_cast<std::uint32_t>(new_id >> 32), std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    store_words(values, row_ + kRowHeaderBytes, value_bytes);
    word(2).store(new_version, std::memory_order_release);
  }

  /// Marks the slot as empty.
  void clear() const { word(2).store(0, std::memory_order_release); }

 private:
  std::atomic_ref<std::uint32_t> word(int i) const {
    return std::atomic_ref(reinterpret_cast<std::uint32_t*>(row_)[i]);
  }
  std::uint32_t& plain(int i) const { return reinterpret_cast<std::uint32_t*>(row_)[i]; }

  template <typename Word>
  static void load_word(std::byte*& from, std::byte*& to) {
    const Word word =
        std::atomic_ref(*reinterpret_cast<Word*>(from)).load(std::memory_order_relaxed);
    std::memcpy(to, &word, sizeof(Word));
    from += sizeof(Word);
    to += sizeof(Word);
  }
  template <typename Word>
  static void store_word(const std::byte*& from, std::byte*& to) {
    Word word;
    std::memcpy(&word, from, sizeof(Word));
    std::atomic_ref(*reinterpret_cast<Word*>(to)).store(word, std::memory_order_relaxed);
    from += sizeof(Word);
    to += sizeof(Word);
  }
  static bool halfway(const std::byte* place) {
    return reinterpret_cast<std::uintptr_t>(place) % 8 != 0;
  }

  // Uses words of 8 bytes where they are aligned; reader and writer divide the row in the same way.
  static void load_words(std::byte* from, void* to, int bytes) {
    auto* out = static_cast<std::byte*>(to);
    const std::byte* const end = from + bytes;
    if (halfway(from) && from < end) load_word<std::uint32_t>(from, out);
    while (from + 8 <= end) load_word<std::uint64_t>(from, out);
    if (from < end) load_word<std::uint32_t>(from, out);
  }
  static void store_words(const void* from, std::byte* to, int bytes) {
    const auto* in = static_cast<const std::byte*>(from);
    const std::byte* const end = to + bytes;
    if (halfway(to) && to < end) store_word<std::uint32_t>(in, to);
    while (to + 8 <= end) store_word<std::uint64_t>(in, to);
    if (to < end) store_word<std::uint32_t>(in, to);
  }

  std::byte* row_;
};

class RowMemory {
 public:
  explicit RowMemory(int row_bytes);
  ~RowMemory();
  RowMemory(const RowMemory&) = delete;
  RowMemory& operator=(const RowMemory&) = delete;

  std::uint32_t size() const { return size_; }
  int row_bytes() const { return row_bytes_; }

  RowBytes row(std::uint32_t slot) const { return RowBytes(address(slot)); }
  std::byte* address(std::uint32_t slot) const {
    const std::uint32_t place = slot + kFirstRows;
    const int extent = 31 - __builtin_clz(place) - kFirstBits;
    return extents_[extent].load(std::memory_order_acquire) +
           std::size_t{place - (kFirstRows << extent)} * row_bytes_;
  }

  std::uint32_t append();  ///< returns the new last slot; it holds no row yet
  void pop();              ///< removes the last slot and clears its row
  void trim();             ///< frees the memory after the last row if it is large

  /// Touched memory in whole pages.
  std::int64_t bytes() const;

 private:
  static constexpr int kFirstBits = 6;
  static constexpr std::uint32_t kFirstRows = 1u << kFirstBits;
  static constexpr int kExtents = 32 - kFirstBits;

  std::size_t extent_bytes(int extent) const;

  int row_bytes_;
  std::uint32_t size_ = 0;
  std::uint32_t touched_ = 0;  // upper bound of rows
  std::array<std::atomic<std::byte*>, kExtents> extents_ = {};
};

}  // namespace strata
