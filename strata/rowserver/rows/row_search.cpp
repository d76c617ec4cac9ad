#include "strata/rowserver/rows/row_search.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/rowserver/rows/row_search.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns a bit per byte of the two words that equals `tag`. (The upper four bytes are a count.)
HWY_INLINE unsigned equal_tags(std::uint64_t low, std::uint64_t high, std::uint64_t tag) {
#if HWY_TARGET == HWY_SCALAR
  unsigned bits = 0;
  for (int k = 0; k < 16; ++k)
    bits |= static_cast<unsigned>(((k < 8 ? low : high) >> k % 8 * 8 & 0xFF) == tag) << k;
  return bits;
#else
  const hn::Full128<std::uint64_t> d;
  const hn::Full128<std::uint8_t> bytes;
  const auto both = hn::BitCast(bytes, hn::ConcatLowerLower(d, hn::Set(d, high), hn::Set(d, low)));
  std::uint8_t bits[8] = {};
  hn::StoreMaskBits(bytes, hn::Eq(both, hn::Set(bytes, static_cast<std::uint8_t>(tag))), bits);
  return bits[0] | bits[1] << 8;
#endif
}

HWY_INLINE std::uint32_t first_slot(RowIndex::Chunks chunks, std::uint32_t at, std::uint64_t tag) {
  for (std::uint32_t seen = 0; seen < chunks.count(); ++seen) {
    const RowIndex::Chunk& chunk = chunks.begin()[at];
    const std::uint64_t low = chunk.tags[0].load(std::memory_order_acquire);
    const std::uint64_t high = chunk.tags[1].load(std::memory_order_acquire);
    if (const unsigned equal = equal_tags(low, high, tag) & ((1u << RowIndex::kEntries) - 1))
      return chunk.slots[__builtin_ctz(equal)].load(std::memory_order_relaxed);
    if (high >> 32 == 0) return kNoSlot;
    at = at + 1 < chunks.count() ? at + 1 : 0;
  }
  return kNoSlot;
}

void Search(const SearchStart* starts, std::uint32_t* slots, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const RowIndex::Chunks chunks(starts[i].chunks);
    slots[i] = chunks.count() == 0 ? kNoSlot
                                   : first_slot(chunks, chunks.home(starts[i].hash),
                                                RowIndex::tag_of(starts[i].hash));
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(Search);

void begin_search(const RowIndex& index, std::span<const std::uint64_t> ids, SearchStart* starts) {
  for (const std::uint64_t id : ids) {
    const std::uint64_t hash = row_hash(id);
    const RowIndex::Chunks chunks = index.chunks(hash);
    *starts++ = {chunks.packed, hash};
    if (chunks.count()) hwy::Prefetch(chunks.begin() + chunks.home(hash));
  }
}
void search(std::span<const SearchStart> starts, std::uint32_t* slots) {
  HWY_DYNAMIC_DISPATCH(Search)(starts.data(), slots, starts.size());
}
}  // namespace strata::kernels
#endif
