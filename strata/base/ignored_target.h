/// Defines the target value that does not count towards the loss.
#pragma once

#include <cstdint>

namespace strata {

inline constexpr std::int64_t kIgnoredTarget = -100;

}  // namespace strata
