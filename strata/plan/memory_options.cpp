#include "strata/plan/memory_options.h"

namespace strata {

const char* name_of(RecomputeMode mode) {
  constexpr const char* kNames[] = {"none", "cheap", "full", "auto"};
  return kNames[static_cast<int>(mode)];
}

void describe(OptionSet& set, const std::string& prefix, MemoryOptions& options) {
  set.add(prefix + ".device", &options.device,
          {.help = "Budget of one rank's device; a plan that needs more is refused (0: no limit)",
           .unit = "bytes",
           .minimum = 0});
  set.add(
      prefix + ".recompute", &options.recompute,
      named({RecomputeMode::kNone, RecomputeMode::kCheap, RecomputeMode::kFull,
             RecomputeMode::kAuto}),
      {.help = "What runs again in backward instead of being kept: nothing, GELU and norms, every "
               "layer, or the cheapest layers that fit the budget"});
}

}  // namespace strata
