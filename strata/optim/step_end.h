/// Ends a step out of its sums: loss, norm, clip factor, whether the update is skipped, the next loss scale.
///
/// No torch, and nothing is asked of anybody: a device does the same in a kernel (step_end.cu), so that a step
/// ends without the host. Rules are constexpr functions of numbers, which both compile; roots and powers are
/// each machine's own.
///
/// Source  Pascanu et al. 2013 (clipping by the norm); Micikevicius et al. 2018 (loss scale).
#pragma once

#include <cstdint>
#include <span>

#include "strata/device/step_scalars.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/loss_scale.h"

namespace strata {

/// A layer's sums of squares among those of its rank, and which number of the step its sum becomes.
struct LayerBlocks {
  std::int64_t begin = 0, end = 0;
  std::int64_t target = 0;
};

/// What follows from the `squares` of a step, added up, and their root.
constexpr void end_step(double squares, double root, double loss, double clip,
                        StepScalars& scalars) {
  scalars.loss = loss;
  scalars.squares = squares;
  scalars.norm = root / scalars.loss_scale;
  scalars.factor = clip_factor(scalars.norm, clip) / scalars.loss_scale;
  const bool is_finite = scalars.norm - scalars.norm == 0;
  const bool skip = scalars.has_gradients == 0 || (scalars.may_skip != 0 && !is_finite);
  scalars.skip = skip ? 1 : 0;
  if (scalars.updates == 0) return;
  LossScale scale = loss_scale_of(scalars);
  if (skip) {
    scale.skip();
  } else {
    scale.good();
  }
  carry(scale, scalars);
}

/// Counts from 1; of a step that is not skipped.
constexpr std::int64_t update_number(const StepScalars& scalars) {
  return scalars.step + 1 - scalars.skipped_updates;
}

/// Of a running statistic: towards that of the mini-batch.
constexpr float moved_statistic(float value, double found, double momentum) {
  return static_cast<float>((1 - momentum) * value + momentum * found);
}

/// sums[target] of each layer, its blocks added in ascending order; the other numbers stay.
void sum_layers(const double* blocks, std::span<const LayerBlocks> layers, double* sums);

/// `sums`: of squares, which are added in ascending order, and the step's loss behind them. Writes
/// what the step has found and, if it updates, what is carried to the next. `clip` 0: no clipping.
void end_step(std::span<const double> sums, double clip, StepScalars& scalars);

}  // namespace strata
