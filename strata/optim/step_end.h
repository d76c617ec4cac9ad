/// Computes from a step's sums the loss, norm, clip factor, whether to skip the update, and the
/// next loss scale.
///
/// No torch: a device does the same in a kernel (step_end.cu), so that a step ends without the
/// host. The rules are constexpr functions that both compilers share; roots and powers come from
/// each platform's own math library.
///
/// Source  Pascanu et al. 2013 (clipping by the norm); Micikevicius et al. 2018 (loss scale).
#pragma once

#include <cstdint>
#include <span>

#include "strata/device/step_scalars.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/loss_scale.h"

namespace strata {

/// Which sums of squares of a rank belong to a layer, and the index of the layer's sum in the step.
struct LayerBlocks {
  std::int64_t begin = 0, end = 0;
  std::int64_t target = 0;
};

/// Ends a step from the total of `squares` and its root.
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

/// The number of a step's update, from 1; for a step that is not skipped.
constexpr std::int64_t update_number(const StepScalars& scalars) {
  return scalars.step + 1 - scalars.skipped_updates;
}

/// Moves a running statistic towards that of the mini-batch.
constexpr float moved_statistic(float value, double found, double momentum) {
  return static_cast<float>((1 - momentum) * value + momentum * found);
}

/// sums[target] = the blocks of each layer, added in ascending order; other elements of `sums`
/// stay.
void sum_layers(const double* blocks, std::span<const LayerBlocks> layers, double* sums);

/// `sums`: sums of squares, added in ascending order, and last the step's loss. Writes the results
/// of the step and, if it updates, the values carried to the next one. `clip` 0: no clipping.
void end_step(std::span<const double> sums, double clip, StepScalars& scalars);

}  // namespace strata
