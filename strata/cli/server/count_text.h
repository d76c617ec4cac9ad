/// Writes a count with its noun.
#pragma once

#include <cstdint>
#include <string>

namespace strata {

/// "1 rank", "2 ranks".
inline std::string count_of(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + ' ' + noun + (count == 1 ? "" : "s");
}

}  // namespace strata
