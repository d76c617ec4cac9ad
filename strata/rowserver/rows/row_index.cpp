// An entry's slot is written before its tag, and a tag is cleared before its slot is reused: a
// reader that sees a tag sees a slot that belonged to it. The row tells whether it still does.
#include "strata/rowserver/rows/row_index.h"

#include <algorithm>
#include <new>

#include "strata/base/errors.h"
#include "strata/rowserver/rows/row_layout.h"

namespace strata {
namespace {

// Shares of used entries: a segment grows above the first, shrinks below the second, and then has
// the third.
constexpr double kFullest = 0.85, kEmptiest = 0.55, kBuilt = 0.70;
// At this size one chunk more or less does not cross both bounds.
constexpr std::uint32_t kLeastShrunk = 8;

constexpr int kBudgetedIndexBytes = kRowOverheadBytes - kRowHeaderBytes;
static_assert(sizeof(RowIndex::Chunk) == 64);
static_assert(64 / (RowIndex::kEntries * kEmptiest) < kBudgetedIndexBytes);

std::uint64_t with_tag(std::uint64_t word, int entry, std::uint64_t tag) {
  const int shift = entry % 8 * 8;
  return (word & ~(std::uint64_t{0xFF} << shift)) | tag << shift;
}

void count_past(RowIndex::Chunk& chunk, int change) {
  const std::uint64_t word = chunk.tags[1].load(std::memory_order_relaxed);
  chunk.tags[1].store(word + (static_cast<std::uint64_t>(static_cast<std::int64_t>(change)) << 32),
                      std::memory_order_relaxed);
}

int free_entry(const RowIndex::Chunk& chunk) {
  for (int entry = 0; entry < RowIndex::kEntries; ++entry)
    if ((chunk.tags[entry / 8].load(std::memory_order_relaxed) >> entry % 8 * 8 & 0xFF) == 0)
      return entry;
  return -1;
}

}  // namespace

RowIndex::~RowIndex() {
  for (const Segment& segment : segments_)
    std::free(Chunks(segment.chunks.load(std::memory_order_relaxed)).begin());
}

void RowIndex::place(Chunks chunks, std::uint64_t hash, std::uint32_t slot) {
  std::uint32_t at = chunks.home(hash);
  for (;; at = at + 1 < chunks.count() ? at + 1 : 0) {
    Chunk& chunk = chunks.begin()[at];
    const int entry = free_entry(chunk);
    if (entry < 0) {
      count_past(chunk, 1);
      continue;
    }
    chunk.slots[entry].store(slot, std::memory_order_relaxed);
    std::atomic<std::uint64_t>& word = chunk.tags[entry / 8];
    word.store(with_tag(word.load(std::memory_order_relaxed), entry, tag_of(hash)),
               std::memory_order_release);
    return;
  }
}

void RowIndex::rebuild(Segment& segment, std::uint32_t entries, const HashOfSlot& hash_of) {
  const Chunks old(segment.chunks.load(std::memory_order_relaxed));
  const auto count =
      std::max<std::uint32_t>(1, static_cast<std::uint32_t>(entries / (kEntries * kBuilt) + 0.999));
  STRATA_CHECK(count < 1u << Chunks::kCountBits, "embed.index");
  void* const memory = std::aligned_alloc(64, std::size_t{count} * 64);
  if (!memory) throw std::bad_alloc();
  auto* const begin = new (memory) Chunk[count]();
  const Chunks fresh(reinterpret_cast<std::uintptr_t>(begin) >> 6 << Chunks::kCountBits | count);
  STRATA_CHECK(fresh.begin() == begin, "embed.index");
  for (std::uint32_t at = 0; at < old.count(); ++at) {
    const Chunk& chunk = old.begin()[at];
    for (int entry = 0; entry < kEntries; ++entry) {
      if ((chunk.tags[entry / 8].load(std::memory_order_relaxed) >> entry % 8 * 8 & 0xFF) == 0)
        continue;
      const std::uint32_t slot = chunk.slots[entry].load(std::memory_order_relaxed);
      place(fresh, hash_of(slot), slot);
    }
  }
  segment.chunks.store(fresh.packed, std::memory_order_release);
  bytes_ += std::int64_t{64} * (std::int64_t{count} - old.count());
  if (old.count()) epochs_.retire(old.begin());
}

void RowIndex::insert(std::uint64_t hash, std::uint32_t slot, const HashOfSlot& hash_of) {
  Segment& target = segment(hash);
  const std::uint32_t room = chunks(hash).count() * kEntries;
  if (target.entries + 1 > room * kFullest) rebuild(target, target.entries + 1, hash_of);
  place(chunks(hash), hash, slot);
  ++target.entries;
}

void RowIndex::erase(std::uint64_t hash, std::uint32_t slot, const HashOfSlot& hash_of) {
  const Chunks all = chunks(hash);
  bool found = false;
  visit(hash, [&](Chunk& chunk, int entry) {
    if (chunk.slots[entry].load(std::memory_order_relaxed) != slot) return false;
    std::atomic<std::uint64_t>& word = chunk.tags[entry / 8];
    word.store(with_tag(word.load(std::memory_order_relaxed), entry, 0), std::memory_order_relaxed);
    for (std::uint32_t at = all.home(hash); &all.begin()[at] != &chunk;
         at = at + 1 < all.count() ? at + 1 : 0)
      count_past(all.begin()[at], -1);
    found = true;
    return true;
  });
  STRATA_CHECK(found, "embed.index");
  Segment& target = segment(hash);
  --target.entries;
  if (all.count() > kLeastShrunk && target.entries < all.count() * kEntries * kEmptiest)
    rebuild(target, target.entries, hash_of);
}

void RowIndex::replace(std::uint64_t hash, std::uint32_t slot, std::uint32_t by) {
  bool found = false;
  visit(hash, [&](Chunk& chunk, int entry) {
    if (chunk.slots[entry].load(std::memory_order_relaxed) != slot) return false;
    chunk.slots[entry].store(by, std::memory_order_relaxed);
    return found = true;
  });
  STRATA_CHECK(found, "embed.index");
}

}  // namespace strata
