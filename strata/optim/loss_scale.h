/// Scales the loss so that 16-bit gradients neither vanish nor overflow.
///
/// The scale doubles after a number of good steps and is halved when a gradient is not finite; that
/// step's update is skipped. Every rank sees the same norm, so all ranks' scales agree.
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
  std::int64_t good_steps = 0;  ///< since the scale last changed
  std::int64_t skipped = 0;     ///< steps without an update, ever

  static LossScale fixed() { return {}; }
  static LossScale half() { return {.scale = 65536, .dynamic = true}; }

  /// A step was updated.
  constexpr void good() {
    if (!dynamic || ++good_steps < kGrowthSteps) return;
    scale *= 2;
    good_steps = 0;
  }

  /// Its gradient was not finite.
  constexpr void skip() {
    scale = std::max(kSmallest, scale / 2);
    good_steps = 0;
    ++skipped;
  }
};

/// As steps carry it.
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
