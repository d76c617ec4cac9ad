/// Bounds the memory of a device and says what may be computed twice to stay within.
#pragma once

#include <string>

#include "strata/base/options.h"
#include "strata/base/units.h"

namespace strata {

struct MemoryOptions {
  Bytes device{};                   ///< budget of a rank; 0: no limit
  std::string recompute = "cheap";  ///< none | cheap | full | auto
};

void describe(OptionSet& set, const std::string& prefix, MemoryOptions& options);

}  // namespace strata
