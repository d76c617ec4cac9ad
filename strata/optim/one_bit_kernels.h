/// Passes over memory of 1-bit Adam (one_bit_adam.h), vectorised for the machine that runs them
/// (Highway).
///
/// No torch and no state. Every operation is one that IEEE 754 rounds correctly and none are fused,
/// and a NaN is written as 0x7FC00000, so an element's bits depend on no cut, thread or instruction
/// set.
///
/// Cost     bytes an element read + written: add_momenta 16 + 4, move_weights 12 + 8.
/// Threads  any, on ranges that don't overlap.
#pragma once

#include <cstdint>

namespace strata::kernels {

/// The constants of one update.
struct OneBitStep {
  float momentum_kept = 0;   ///< beta1
  float gradient_share = 0;  ///< (1 - beta1) replicas gradient_factor
  float most = 0;            ///< that a gradient adds to u
  float root_scale = 1;      ///< 1 / sqrt(1 - beta2^n) after n changes of v
  float epsilon = 0;
  float size = 0;  ///< learning rate / (1 - beta1^update)
  float kept = 1;  ///< 1 - learning rate * weight decay
};

/// sent += momentum_kept m / r + clamp(gradient_share g / r, -most, most),
/// r = sqrt(v) root_scale + epsilon
void add_momenta(const OneBitStep& step, const float* gradients, const float* momenta,
                 const float* variances, float* sent, std::int64_t n);

/// w = w kept - size u,  m = u r
void move_weights(const OneBitStep& step, const float* directions, const float* variances,
                  float* momenta, float* weights, float kept, std::int64_t n);

}  // namespace strata::kernels
