#include "strata/rowserver/rows/row_index.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

// Slot n holds id n.
std::uint64_t hash_of(std::uint32_t slot) { return row_hash(slot); }

// Entries that were placed after full chunks, over the whole index.
std::uint64_t count_past(const RowIndex& index) {
  std::uint64_t sum = 0;
  for (std::uint64_t segment = 0; segment < 1u << RowIndex::kSegmentBits; ++segment) {
    const RowIndex::Chunks chunks = index.chunks(segment << (64 - RowIndex::kSegmentBits));
    for (std::uint32_t i = 0; i < chunks.count(); ++i)
      sum += chunks.begin()[i].tags[1].load() >> 32;
  }
  return sum;
}

TEST(RowIndex, EraseDecrementsOverflowCounts) {
  constexpr std::uint32_t kSlots = 50'000;  // too few for segments to shrink and restart
  ReadEpochs epochs(std::free);
  RowIndex index(epochs);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const RowIndex::Change change(index, hash_of(slot));
    index.insert(hash_of(slot), slot, hash_of);
  }
  for (std::uint32_t slot = 0; slot < kSlots; ++slot)
    ASSERT_EQ(index.find(hash_of(slot), [&](std::uint32_t at) { return at == slot; }), slot);
  EXPECT_GT(count_past(index), 100u);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const RowIndex::Change change(index, hash_of(slot));
    index.erase(hash_of(slot), slot, hash_of);
  }
  EXPECT_EQ(count_past(index), 0u);  // otherwise searches would become longer and longer
}

}  // namespace
}  // namespace strata
