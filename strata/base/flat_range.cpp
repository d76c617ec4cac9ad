#include "strata/base/flat_range.h"

#include <algorithm>

namespace strata {
namespace {

std::int64_t blocks_of(std::int64_t numel) { return (numel + kFlatBlock - 1) / kFlatBlock; }

}  // namespace

std::vector<FlatRange> cut(FlatRange whole, int parts) {
  const std::int64_t blocks = blocks_of(whole.size());
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
  return std::min(numel, (blocks_of(numel) + parts - 1) / parts * kFlatBlock);
}

}  // namespace strata
