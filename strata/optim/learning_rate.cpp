#include "strata/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "strata/base/errors.h"

namespace strata {

double LearningRateSchedule::at(std::int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (decay == "constant") return peak;
  const std::int64_t peak_step = std::max<std::int64_t>(warmup_steps - 1, 0);
  const std::int64_t decay_steps = total_steps - 1 - peak_step;
  const double progress =
      decay_steps <= 0
          ? 0.0
          : std::min(1.0, static_cast<double>(step - peak_step) / static_cast<double>(decay_steps));
  double remaining = 0;  // of the way from the final fraction up to the peak
  if (decay == "linear") {
    remaining = 1 - progress;
  } else if (decay == "cosine") {
    remaining = (1 + std::cos(std::numbers::pi * progress)) / 2;
  } else {
    throw UserError({.operation = "optim.learning_rate",
                     .where = "decay",
                     .what = "there is no such decay",
                     .expected = "cosine, linear or constant",
                     .got = decay,
                     .fix = "set train.decay=cosine"});
  }
  return peak * (final_fraction + (1 - final_fraction) * remaining);
}

}  // namespace strata
