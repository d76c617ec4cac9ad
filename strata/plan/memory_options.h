/// Bounds the memory of a device and says what may be computed twice to stay within.
#pragma once

#include <cstdint>
#include <string>

#include "strata/base/options.h"
#include "strata/base/units.h"

namespace strata {

/// What runs again in backward instead of being kept.
enum class RecomputeMode : std::uint8_t {
  kNone,   ///< nothing: operations keep all they need
  kCheap,  ///< GELU and norms, inside layers
  kFull,   ///< every layer
  kAuto,   ///< of layers, the cheapest that make the plan fit
};
const char* name_of(RecomputeMode mode);  ///< "none", "cheap", "full", "auto"

struct MemoryOptions {
  Bytes device{};  ///< budget of a rank; 0: no limit
  RecomputeMode recompute = RecomputeMode::kCheap;
};

void describe(OptionSet& set, const std::string& prefix, MemoryOptions& options);

}  // namespace strata
