#include "strata/base/flat_range.h"

#include <algorithm>

namespace strata {
std::vector<FlatRange> cut(FlatRange whole, int parts) {
  const std::int64_t blocks = num_blocks(whole.size());
  std::vector<FlatRange> ranges;
  for (int part = 0; part < parts; ++part) {
    const auto edge = [&](std::int64_t i) {
      return std::min(whole.begin + blocks * i / parts * kFlatBlock, whole.end);
    };
    ranges.push_back({edge(part), edge(part + 1)});
  }
  return ranges;
}

std::int64_t largest_cut(std::int64_t numel, int parts) {
  return std::min(numel, (num_blocks(numel) + parts - 1) / parts * kFlatBlock);
}

bool are_even(std::span<const FlatRange> parts) {
  std::int64_t end = 0;
  return std::ranges::all_of(parts, [&](const FlatRange& part) {
    const bool adjacent = part.begin == end && part.size() == parts[0].size();
    end = part.end;
    return adjacent;
  });
}

}  // namespace strata
