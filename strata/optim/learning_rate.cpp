#include "strata/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "strata/base/enum_names.h"

namespace strata {

const char* name_of(Decay decay) {
  using enum Decay;
  static constexpr EnumNames<Decay> kNames{
      {kCosine, "cosine"}, {kLinear, "linear"}, {kConstant, "constant"}};
  return kNames[decay];
}

double LearningRateSchedule::at(std::int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (decay == Decay::kConstant) return peak;
  const std::int64_t peak_step = std::max<std::int64_t>(warmup_steps - 1, 0);
  const std::int64_t decay_steps = total_steps - 1 - peak_step;
  const double progress =
      decay_steps <= 0
          ? 0.0
          : std::min(1.0, static_cast<double>(step - peak_step) / static_cast<double>(decay_steps));
  // The remaining share of the way down from the peak to the final fraction.
  const double remaining =
      decay == Decay::kLinear ? 1 - progress : (1 + std::cos(std::numbers::pi * progress)) / 2;
  return peak * (final_fraction + (1 - final_fraction) * remaining);
}

}  // namespace strata
