/// Marks the targets that don't count towards the loss, for those who make them and those who read
/// them.
#pragma once

#include <cstdint>

namespace strata {

inline constexpr std::int64_t kIgnoredTarget = -100;

}  // namespace strata
