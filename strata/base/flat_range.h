/// Names a part of a flat buffer.
#pragma once

#include <cstdint>

namespace strata {

/// Elements [begin, end).
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};

}  // namespace strata
