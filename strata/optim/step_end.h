/// Ends a step out of its sums: loss, norm, clip factor, whether the update is skipped, the next loss scale.
///
/// No torch, and nothing is asked of anybody: a device does the same in a kernel of its own
/// (step_end.cu), so that a step ends without the host.
///
/// Source  Pascanu et al. 2013 (clipping by the norm); Micikevicius et al. 2018 (loss scale).
#pragma once

#include <cstdint>
#include <span>

#include "strata/device/step_scalars.h"

namespace strata {

/// A layer's sums of squares among those of its rank, and which number of the step its sum becomes.
struct LayerBlocks {
  std::int64_t begin = 0, end = 0;
  std::int64_t target = 0;
};

/// sums[target] of each layer, its blocks added in ascending order; the other numbers stay.
void sum_layers(const double* blocks, std::span<const LayerBlocks> layers, double* sums);

/// `sums`: of squares, which are added in ascending order, and the step's loss behind them. Writes
/// what the step has found and, if it updates, what is carried to the next. `clip` 0: no clipping.
void end_step(std::span<const double> sums, double clip, StepScalars& scalars);

}  // namespace strata
