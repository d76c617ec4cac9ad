/// Names a part of a flat buffer, and cuts one into parts.
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

/// Flat buffers are cut, and the squares of gradients summed, in blocks of so many elements: no
/// block's sum is divided among ranks.
inline constexpr std::int64_t kFlatBlock = 1024;

/// Blocks that `numel` elements fill, the last one partly.
constexpr std::int64_t num_blocks(std::int64_t numel) {
  return (numel + kFlatBlock - 1) / kFlatBlock;
}

/// `parts` consecutive ranges of whole blocks that cover `whole`; the last ones may be empty.
std::vector<FlatRange> cut(FlatRange whole, int parts);

/// Whether they have one size and stand side by side from element 0 on.
bool are_even(std::span<const FlatRange> parts);

/// Whole blocks of the largest of these ranges, as if the last block were full: at most `numel`.
std::int64_t largest_cut(std::int64_t numel, int parts);

}  // namespace strata
