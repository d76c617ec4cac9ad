/// Names consecutive layers of a model.
#pragma once

namespace strata {

/// Half-open range of global layer indices.
struct LayerRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

}  // namespace strata
