/// Passes over memory of LAMB (lamb.h), vectorised for the machine that runs them (Highway).
///
/// No torch and no state. Every operation is one that IEEE 754 rounds correctly and none are fused,
/// so an element's bits depend on no cut, thread or instruction set.
///
/// Cost     bytes an element read + written: find_directions 16 + 12, move_by_directions 8 + 4.
/// Threads  any, on ranges that don't overlap.
#pragma once

#include <cstdint>

#include "strata/optim/update_kernels.h"

namespace strata::kernels {

/// Moves the means and mean squares as AdamW and replaces the gradients by
///
///     u = size m / (sqrt(v) root_scale + epsilon) + penalty w
///
/// `step`: AdamW's constants for a learning rate of 1.
void find_directions(const UpdateStep& step, const float* weights, float* gradients, float* means,
                     float* squares, std::int64_t n);

/// w = w - rate u
void move_by_directions(float rate, const float* directions, float* weights, std::int64_t n);

}  // namespace strata::kernels
