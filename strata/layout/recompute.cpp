#include "strata/layout/recompute.h"

#include "strata/base/enum_names.h"

namespace strata {

const char* name_of(Recompute level) {
  using enum Recompute;
  static constexpr EnumNames<Recompute> kNames{
      {kNone, "none"}, {kCheap, "cheap"}, {kProducts, "products"}, {kAttention, "attention"}};
  return kNames[level];
}

void RecomputeLevels::set(int layer, Recompute level) {
  if (layer >= static_cast<int>(levels_.size())) levels_.resize(layer + 1, base_);
  levels_[layer] = level;
  while (!levels_.empty() && levels_.back() == base_) levels_.pop_back();  // equal if all are equal
}

std::vector<int> RecomputeLevels::other_layers() const {
  std::vector<int> layers;
  for (int layer = 0; layer < static_cast<int>(levels_.size()); ++layer)
    if (levels_[layer] != base_) layers.push_back(layer);
  return layers;
}

}  // namespace strata
