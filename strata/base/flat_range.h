/// Names a part of a flat buffer, and cuts a buffer into parts.
///
/// Units  elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

/// Elements [begin, end).
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};

/// Flat buffers are cut, and squares of gradients are summed, in blocks of this many elements, so
/// that no block's sum is divided among ranks.
inline constexpr std::int64_t kFlatBlock = 1024;

/// Returns the number of blocks of `numel` elements; the last one may be partly filled.
constexpr std::int64_t num_blocks(std::int64_t numel) {
  return (numel + kFlatBlock - 1) / kFlatBlock;
}

/// Returns `parts` consecutive ranges of whole blocks that cover `whole`; the last ones may be
/// empty.
std::vector<FlatRange> cut(FlatRange whole, int parts);

/// Whether the parts have one size and follow each other from element 0 on.
bool are_even(std::span<const FlatRange> parts);

/// Returns the elements of the largest range that cut() makes, counting its last block as full; at
/// most `numel`.
std::int64_t largest_cut(std::int64_t numel, int parts);

}  // namespace strata
