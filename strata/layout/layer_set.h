/// Holds a set of layers, such as the recomputed ones or those with sharded weights.
///
/// Cost  one bit per layer; has() is one look-up.
#pragma once

#include <initializer_list>
#include <vector>

namespace strata {

class LayerSet {
 public:
  LayerSet() = default;
  LayerSet(std::initializer_list<int> layers) {
    for (const int layer : layers) add(layer);
  }
  explicit LayerSet(const std::vector<int>& layers) {
    for (const int layer : layers) add(layer);
  }
  /// Layers [0, num_layers).
  static LayerSet all(int num_layers) {
    LayerSet set;
    set.has_.assign(num_layers, true);
    return set;
  }

  bool has(int layer) const { return layer < static_cast<int>(has_.size()) && has_[layer]; }
  bool empty() const { return has_.empty(); }
  int size() const { return static_cast<int>(layers().size()); }
  std::vector<int> layers() const {  ///< ascending
    std::vector<int> layers;
    for (int layer = 0; layer < static_cast<int>(has_.size()); ++layer)
      if (has_[layer]) layers.push_back(layer);
    return layers;
  }

  void add(int layer) {
    if (layer >= static_cast<int>(has_.size())) has_.resize(layer + 1);
    has_[layer] = true;
  }
  void remove(int layer) {
    if (has(layer)) has_[layer] = false;
    while (!has_.empty() && !has_.back()) has_.pop_back();  // so that equal sets are equal
  }
  friend bool operator==(const LayerSet&, const LayerSet&) = default;

 private:
  std::vector<bool> has_;  // one bit per layer, up to the last member
};

}  // namespace strata
