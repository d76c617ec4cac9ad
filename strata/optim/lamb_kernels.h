/// Passes over memory of LAMB (lamb.h, one_bit_lamb.h), vectorised for the machine that runs them
/// (Highway).
///
/// No torch and no state. Every operation is one that IEEE 754 rounds correctly and none are fused,
/// and a NaN is written as 0x7FC00000, so an element's bits depend on no cut, thread or instruction
/// set.
///
/// Cost     bytes an element read + written: find_directions 16 + 12, move_by_directions 8 + 4,
///          refresh_variances 16 + 4.
/// Threads  any, on ranges that don't overlap.
#pragma once

#include <cstdint>

#include "strata/optim/one_bit_kernels.h"
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

/// The constants of fresh variances.
struct FreshStep {
  float square_kept = 0, square_share = 0;  ///< beta2, 1 - beta2
  float gradient_scale = 1;                 ///< 1 / (1 - beta1)
  float root_scale = 1;                     ///< 1 / sqrt(1 - beta2^update)
};

/// Moves the fresh variances by the gradients that a mean direction u stands for,
///
///     r = sqrt(v) step.root_scale + epsilon,  g = gradient_scale (u r - momentum_kept m)
///     fresh = square_kept fresh + square_share g g
///
/// and returns the largest r / (sqrt(fresh) fresh_step.root_scale + epsilon): NaN if one is, and 0
/// for n = 0.
float refresh_variances(const OneBitStep& step, const FreshStep& fresh_step,
                        const float* directions, const float* momenta, const float* variances,
                        float* fresh, std::int64_t n);

}  // namespace strata::kernels
