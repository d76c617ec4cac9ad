/// Computes the learning rate of a step: linear warm-up, then constant, linear or cosine decay.
#pragma once

#include <cstdint>
#include <string>

#include "strata/base/options.h"

namespace strata {

enum class Decay : std::uint8_t { kCosine, kLinear, kConstant };
const char* name_of(Decay decay);  ///< "cosine", "linear", "constant"

struct LearningRateSchedule {
  double peak = 1e-3;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  Decay decay = Decay::kCosine;
  double final_fraction = 0.1;  ///< share of the peak at the last step

  /// `step` counts from 0.
  double at(std::int64_t step) const;
};

}  // namespace strata
