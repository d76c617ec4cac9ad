/// Finds the slot of a row by the hash of its id: open addressing over chunks of one cache line.
///
/// A chunk holds 12 entries, each a tag of one byte and a slot of four, and counts the entries that
/// were placed after it because it was full. A search ends at a chunk whose count is 0, so removal
/// leaves no tombstones. The upper bits of the hash select one of 1,024 segments. Each segment
/// grows separately, by a fifth, so growth takes little time and memory. A segment is 55 % to 85 %
/// full: 6.3 to 9.7 bytes per row. The layout depends only on the order of insertions and removals.
///
/// How a search runs in parallel with changes:
///   1. The version of a segment is odd while entries change, and increases with every change.
///   2. A reader that finds an entry checks the id in the row. A reader that finds none checks that
///      the version is even and unchanged.
///   3. Replaced arrays live until their readers have finished (ReadEpochs).
///
/// Source   chunks: F14 (Bronson & Shi, "Open-sourcing F14", 2019).
/// Threads  search, version(): any, within a ReadEpochs::Reading; the rest: one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <span>

#include "strata/base/philox.h"
#include "strata/rowserver/rows/read_epochs.h"

namespace strata {

inline std::uint64_t row_hash(std::uint64_t id) { return mix_key(id, 0); }

inline constexpr std::uint32_t kNoSlot = 0xFFFFFFFFu;

class RowIndex {
 public:
  static constexpr int kEntries = 12;
  static constexpr int kSegmentBits = 10;

  struct alignas(64) Chunk {
    // 12 tags, 0 where there is no entry; the upper half of the second word counts the entries that
    // were placed after this chunk.
    std::array<std::atomic<std::uint64_t>, 2> tags;
    std::array<std::atomic<std::uint32_t>, kEntries> slots;
  };

  /// The chunks of a segment: address / 64 and number in one word, which is read atomically.
  struct Chunks {
    explicit Chunks(std::uint64_t packed) : packed(packed) {}
    Chunk* begin() const { return reinterpret_cast<Chunk*>(packed >> kCountBits << 6); }
    std::uint32_t count() const { return packed & ((1u << kCountBits) - 1); }
    std::uint32_t home(std::uint64_t hash) const {
      return static_cast<std::uint32_t>((hash >> 8 & 0xFFFFFFFFu) * count() >> 32);
    }
    static constexpr int kCountBits = 22;
    std::uint64_t packed;
  };

  explicit RowIndex(ReadEpochs& epochs) : epochs_(epochs) {}
  ~RowIndex();
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  static std::uint64_t tag_of(std::uint64_t hash) { return (hash & 0xFF) ? hash & 0xFF : 1; }

  Chunks chunks(std::uint64_t hash) const {
    return Chunks(segment(hash).chunks.load(std::memory_order_acquire));
  }

  /// Returns the first slot with the hash's tag for which `matches` is true; kNoSlot: none.
  template <typename Matches>
  std::uint32_t find(std::uint64_t hash, Matches matches) const {
    std::uint32_t found = kNoSlot;
    visit(hash, [&](Chunk& chunk, int entry) {
      const std::uint32_t slot = chunk.slots[entry].load(std::memory_order_relaxed);
      if (!matches(slot)) return false;
      found = slot;
      return true;
    });
    return found;
  }

  /// Version of the hash's segment: odd while it changes.
  std::uint32_t version(std::uint64_t hash) const {
    return segment(hash).version.load(std::memory_order_acquire);
  }
  /// Returns whether the segment still has `version`. Orders earlier reads before this check.
  bool unchanged(std::uint64_t hash, std::uint32_t version) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return version % 2 == 0 && segment(hash).version.load(std::memory_order_relaxed) == version;
  }

  /// Marks the hash's segment as changing while it lives. Must not be nested within a table.
  class Change {
   public:
    Change(RowIndex& index, std::uint64_t hash) : version_(index.segment(hash).version) {
      version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_release);
    }
    ~Change() {
      version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    std::atomic<std::uint32_t>& version_;
  };

  using HashOfSlot = std::function<std::uint64_t(std::uint32_t slot)>;

  // Call within a Change of the hash.
  void insert(std::uint64_t hash, std::uint32_t slot, const HashOfSlot& hash_of);
  void erase(std::uint64_t hash, std::uint32_t slot, const HashOfSlot& hash_of);
  void replace(std::uint64_t hash, std::uint32_t slot, std::uint32_t by);

  std::int64_t bytes() const { return bytes_ + static_cast<std::int64_t>(sizeof(segments_)); }

 private:
  struct Segment {
    std::atomic<std::uint64_t> chunks = 0;
    std::atomic<std::uint32_t> version = 0;
    std::uint32_t entries = 0;
  };

  const Segment& segment(std::uint64_t hash) const {
    return segments_[hash >> (64 - kSegmentBits)];
  }
  Segment& segment(std::uint64_t hash) { return segments_[hash >> (64 - kSegmentBits)]; }

  /// Calls visitor(chunk, entry) for entries with the hash's tag, until it returns true.
  template <typename Visitor>
  void visit(std::uint64_t hash, Visitor visitor) const {
    const Chunks all = chunks(hash);
    const std::uint64_t tag = tag_of(hash);
    std::uint32_t at = all.count() ? all.home(hash) : 0;
    for (std::uint32_t seen = 0; seen < all.count(); ++seen) {
      Chunk& chunk = all.begin()[at];
      const std::uint64_t words[2] = {chunk.tags[0].load(std::memory_order_acquire),
                                      chunk.tags[1].load(std::memory_order_acquire)};
      for (int entry = 0; entry < kEntries; ++entry)
        if ((words[entry / 8] >> entry % 8 * 8 & 0xFF) == tag && visitor(chunk, entry)) return;
      if (words[1] >> 32 == 0) return;
      at = at + 1 < all.count() ? at + 1 : 0;
    }
  }

  void place(Chunks chunks, std::uint64_t hash, std::uint32_t slot);
  void rebuild(Segment& segment, std::uint32_t entries, const HashOfSlot& hash_of);

  ReadEpochs& epochs_;
  std::array<Segment, 1 << kSegmentBits> segments_;
  std::int64_t bytes_ = 0;
};

}  // namespace strata
