/// Lays out the ranks: how many hold the model, and in which order they work.
#pragma once

#include <cstdint>
#include <string>

#include "strata/base/options.h"

namespace strata {

struct MeshOptions {
  std::int64_t pp = 1;
  std::int64_t virtual_stages = 1;
  std::string schedule = "1f1b";  ///< gpipe | 1f1b | interleaved
  std::int64_t threads = 0;       ///< per rank; 0: cores / ranks
};

void describe(OptionSet& set, const std::string& prefix, MeshOptions& options);

}  // namespace strata
