/// Scales the loss so that 16-bit gradients neither vanish nor overflow.
///
/// The scale doubles after a number of good steps. It is halved when a gradient is not finite, and
/// the update of that step is skipped. Ranks that make an update together have the same norm, so
/// their scales agree.
///
/// Source  Micikevicius et al. 2018 (mixed precision training), section 3.2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "strata/device/step_scalars.h"

namespace strata {

struct LossScale {
  static constexpr std::int64_t kGrowthSteps = 2000;
  static constexpr double kSmallest = 1;

  double scale = 1;
  bool dynamic = false;
  std::int64_t good_steps = 0;  ///< since the scale changed
  std::int64_t skipped = 0;     ///< all steps without an update

  static LossScale fixed() { return {}; }
  static LossScale half() { return {.scale = 65536, .dynamic = true}; }

  /// Records a step with an update.
  constexpr void good() {
    if (!dynamic || ++good_steps < kGrowthSteps) return;
    scale *= 2;
    good_steps = 0;
  }

  /// Records a step whose gradient was not finite.
  constexpr void skip() {
    scale = std::max(kSmallest, scale / 2);
    good_steps = 0;
    ++skipped;
  }
};

/// The loss scale that a step's scalars carry.
constexpr LossScale loss_scale_of(const StepScalars& scalars) {
  return {.scale = scalars.loss_scale,
          .dynamic = scalars.may_skip != 0,
          .good_steps = scalars.good_steps,
          .skipped = scalars.skipped_updates};
}

constexpr void carry(const LossScale& scale, StepScalars& scalars) {
  scalars.loss_scale = scale.scale;
  scalars.may_skip = scale.dynamic ? 1 : 0;
  scalars.good_steps = scale.good_steps;
  scalars.skipped_updates = scale.skipped;
}

}  // namespace strata
