#include "strata/optim/step_end.h"

#include <cmath>

#include "strata/optim/gradient_norm.h"
#include "strata/optim/loss_scale.h"

namespace strata {

void sum_layers(const double* blocks, std::span<const LayerBlocks> layers, double* sums) {
  for (const LayerBlocks& layer : layers)
    sums[layer.target] = ordered_sum({blocks + layer.begin, blocks + layer.end});
}

void end_step(std::span<const double> sums, double clip, StepScalars& scalars) {
  scalars.loss = sums.back();
  scalars.squares = ordered_sum(sums.first(sums.size() - 1));
  scalars.norm = std::sqrt(scalars.squares) / scalars.loss_scale;
  scalars.factor = clip_factor(scalars.norm, clip) / scalars.loss_scale;
  const bool overflowed = scalars.may_skip != 0 && !std::isfinite(scalars.norm);
  scalars.skip = scalars.has_gradients == 0 || overflowed ? 1 : 0;
  if (scalars.updates == 0) return;
  LossScale scale = loss_scale_of(scalars);
  if (scalars.skip != 0) {
    scale.skip();
  } else {
    scale.good();
  }
  carry(scale, scalars);
}

}  // namespace strata
