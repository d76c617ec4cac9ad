#include "strata/optim/weight_blocks.h"

#include <algorithm>

namespace strata {
namespace {

// The flat blocks of which a range has elements.
std::int64_t count_blocks(FlatRange range) {
  return range.size() <= 0 ? 0 : num_blocks(range.end) - range.begin / kFlatBlock;
}

}  // namespace

FlatRange WeightBlocks::Weight::part_in(FlatRange range) const {
  const std::int64_t begin = std::clamp(range.begin, elements.begin, elements.end);
  return {begin, std::clamp(range.end, begin, elements.end)};
}

WeightBlocks::WeightBlocks(const LayerLayout& layout) {
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    if (!layout.specs[i].decay || place.borrowed) continue;
    weights_.push_back({.index = i,
                        .elements = {place.offset, place.offset + place.numel},
                        .divided = layout.specs[i].split.axis >= 0});
  }
  std::ranges::sort(weights_, {}, [](const Weight& weight) { return weight.elements.begin; });
  std::int64_t blocks = 0;
  for (Weight& weight : weights_) {
    weight.blocks = {blocks, blocks + count_blocks(weight.elements)};
    blocks = weight.blocks.end;
  }
}

std::int64_t WeightBlocks::before(std::int64_t element) const {
  std::int64_t blocks = 0;
  for (const Weight& weight : weights_)
    blocks += count_blocks({weight.elements.begin, std::min(weight.elements.end, element)});
  return blocks;
}

}  // namespace strata
