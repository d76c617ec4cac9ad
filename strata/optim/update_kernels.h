/// Updates flat weights in one pass over memory, vectorised for the machine that runs it (Highway).
///
/// No torch and no state; arrays may lie in any memory. An element's bits depend on its own values
/// and the constants of the step alone, never on cuts, threads or the instruction set: every
/// operation is one that IEEE 754 rounds correctly, none are fused, and a NaN is written as
/// 0x7FC00000.
///
/// Source   AdamW (Loshchilov & Hutter 2019); SGD with momentum (Sutskever et al. 2013); Adagrad
///          (Duchi et al. 2011).
/// Shapes   the arrays of an update have the same elements in the same order.
/// Cost     bytes an element read + written by AdamW: fp32 alone 16 + 12; bf16 gradients and a bf16
///          copy 14 + 14; split weights and bf16 gradients 14 + 12.
/// Threads  any, on ranges that don't overlap.
#pragma once

#include <cstdint>

#include "strata/base/flat_range.h"
#include "strata/nn/kernels/kernels.h"

namespace strata::kernels {

enum class UpdateRule : std::uint8_t { kAdamW, kSgd, kSgdMomentum, kAdagrad };

constexpr int num_slots(UpdateRule rule) {
  return rule == UpdateRule::kAdamW ? 2 : rule == UpdateRule::kSgd ? 0 : 1;
}

/// The constants of one update; update_step() computes them.
///
///     g = gradient * gradient_factor
///     AdamW     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g g
///               w = w kept - size m / (sqrt(v) root_scale + epsilon)
///     SGD       g = g + penalty w
///               b = momentum b + g,  w = w - size b;  without momentum w = w - size g
///     Adagrad   g = g + penalty w
///               s = s + g g,  w = w - size g / (sqrt(s) + epsilon)
///
/// LAMB (lamb_kernels.h) takes AdamW's constants, of which it does not use `kept`.
struct UpdateStep {
  UpdateRule rule = UpdateRule::kAdamW;
  float gradient_factor = 1;                ///< 1 / loss scale, clipping
  float size = 0;                           ///< learning rate; AdamW: / (1 - beta1^step)
  float kept = 1;                           ///< AdamW: 1 - learning rate * weight decay
  float penalty = 0;                        ///< SGD, Adagrad, LAMB: weight decay
  float mean_kept = 0, mean_share = 0;      ///< AdamW: beta1, 1 - beta1
  float square_kept = 0, square_share = 0;  ///< AdamW: beta2, 1 - beta2
  float root_scale = 0;                     ///< AdamW: 1 / sqrt(1 - beta2^step)
  float epsilon = 0;
  float momentum = 0;
};

/// The constants that all steps of an optimizer share.
struct UpdateConstants {
  UpdateRule rule = UpdateRule::kAdamW;
  double beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0, momentum = 0;
};

/// Correction of AdamW's means, which start at zero, after n updates.
struct BiasCorrection {
  double mean = 1;         ///< 1 - beta1^n
  double square_root = 1;  ///< sqrt(1 - beta2^n)
};

/// Computed in fp64, rounded once, by the host or the device, each with its own powers and roots.
constexpr UpdateStep update_step(const UpdateConstants& of, const BiasCorrection& correction,
                                 double learning_rate, double gradient_factor) {
  UpdateStep step{.rule = of.rule,
                  .gradient_factor = static_cast<float>(gradient_factor),
                  .size = static_cast<float>(learning_rate),
                  .penalty = static_cast<float>(of.weight_decay),
                  .epsilon = static_cast<float>(of.epsilon),
                  .momentum = static_cast<float>(of.momentum)};
  if (of.rule != UpdateRule::kAdamW) return step;
  step.size = static_cast<float>(learning_rate / correction.mean);
  step.kept = static_cast<float>(1 - learning_rate * of.weight_decay);
  step.mean_kept = static_cast<float>(of.beta1);
  step.mean_share = static_cast<float>(1 - of.beta1);
  step.square_kept = static_cast<float>(of.beta2);
  step.square_share = static_cast<float>(1 - of.beta2);
  step.root_scale = static_cast<float>(1 / correction.square_root);
  return step;
}

/// An fp32 weight in two halves, 4 bytes in all. `high` is the weight as a bf16 that can be sent
/// and computed with, rounded to nearest, ties away from zero; it differs from ties-to-even only if
/// the lower half is 0x8000. The weight's upper half is high - (low >> 15), so no bit is lost for
/// any sign, denormal or infinity; a NaN becomes 0x7FC00000.
struct SplitWeights {
  std::uint16_t* high = nullptr;
  std::uint16_t* low = nullptr;
};

/// Pointers to element 0 of each array.
struct UpdateArrays {
  float* weights = nullptr;  ///< or `split`
  SplitWeights split = {};
  const void* gradients = nullptr;  ///< read only
  Element gradient_element = Element::kFp32;
  float* slots[2] = {};  ///< AdamW: means, mean squares; momentum: velocities; Adagrad: sums
  /// 16 bit: receives the weights, rounded to nearest even; null: no copy
  void* rounded = nullptr;
  Element rounded_element = Element::kBf16;
  std::int64_t decay_numel = 0;  ///< elements [0, decay_numel) are decayed
};

/// Updates elements [range.begin, range.end).
void update(const UpdateStep& step, const UpdateArrays& arrays, FlatRange range);

void split_weights(const float* weights, SplitWeights split, std::int64_t n);
void join_weights(SplitWeights split, float* weights, std::int64_t n);

}  // namespace strata::kernels
