/// Gives the learning rate of a step: linear warm-up, then constant, linear or cosine decay.
#pragma once

#include <cstdint>
#include <string>

#include "strata/base/options.h"

namespace strata {

struct LearningRateSchedule {
  double peak = 1e-3;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  std::string decay = "cosine";  ///< cosine | linear | constant
  double final_fraction = 0.1;   ///< of the peak, at the last step

  /// `step` counts from 0.
  double at(std::int64_t step) const;
};

}  // namespace strata
