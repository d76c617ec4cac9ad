/// Freezes the trust ratios of LAMB and scales them by how the mean squared gradients have changed
/// since: 1-bit LAMB.
///
/// The first updates are LAMB's (lamb.h); each weight with decay keeps the mean of its trust
/// ratios, an update of which keeps the fraction coeff_beta. After freeze_step the mean squared
/// gradients v stay as they are, and replicas send the signs of their momenta (one_bit_adam.h)
/// instead of gradients. The averaged momenta m, which all replicas have, determine a gradient g
/// and fresh mean squares, which begin as a copy of v:
///
///     g = (m - beta1 m_before) / (1 - beta1),  fresh = beta2 fresh + (1 - beta2) g g
///
/// A weight then moves by its mean ratio times a factor, the largest of its elements'
///
///     (sqrt(v / (1 - beta2^freeze_step)) + epsilon) / (sqrt(fresh / (1 - beta2^t)) + epsilon),
///
/// which is limited to factor_min and factor_max, and to a relative change of factor_threshold an
/// update. Decay is a part of the direction, as in LAMB. Weights without decay move as 1-bit Adam
/// moves them.
///
/// Source   Li et al. 2021, "1-bit LAMB" (arXiv 2104.06069).
/// Shapes   as in one_bit_adam.h; a fifth slot has the fresh variances of weights with decay.
/// Threads  the calling thread's pool; cuts and threads change no bit.
/// Cost     two passes over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "strata/optim/lamb_kernels.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/weight_blocks.h"

namespace strata {

/// In the files of checkpoints.
inline constexpr const char* kFreshVariance = "exp_avg_sq_fresh";
inline constexpr const char* kFrozenRatio = "trust_ratio";  ///< FrozenRatio

/// Of a weight with decay; a checkpoint keeps both numbers, in this order.
struct FrozenRatio {
  float mean = 1;    ///< of the trust ratios until freeze_step
  float factor = 1;  ///< of the last update
};
static_assert(sizeof(FrozenRatio) == 2 * sizeof(float));

/// Adds the trust ratio of an update, counted from 1, to the mean. As in a mean from 0 with a
/// corrected bias, the first ratio alone makes the first mean.
FrozenRatio with_ratio(const OptimizerOptions& options, FrozenRatio frozen, std::int64_t update,
                       double ratio);

/// With the next factor: `largest`, the largest of the elements' factors, within the limits.
FrozenRatio with_factor(const OptimizerOptions& options, FrozenRatio frozen, double largest);

/// The constants of an update after freeze_step.
struct OneBitLambStep {
  OneBitStep adam;
  kernels::FreshStep fresh;
  bool first = false;  ///< after freeze_step
  double learning_rate = 0;
  double weight_decay = 0;
};

/// `adam`: of the same update and learning rate.
OneBitLambStep one_bit_lamb_step(const OptimizerOptions& options, std::int64_t update,
                                 double learning_rate, const OneBitStep& adam);

/// Moves the fresh variances by the gradients of the averaged direction, and returns the largest
/// factor of each weight with decay among the range's elements: NaN if one is, and 0 if the range
/// has none of its elements. `padding`: ascending ranges of the layer that no weight covers.
std::vector<double> refresh_variances(const OneBitLambStep& step, const WeightBlocks& blocks,
                                      const UpdateRange& range, std::int64_t begin,
                                      std::span<const FlatRange> padding,
                                      const at::Tensor& direction);

/// Moves the weights by the averaged direction and sets m to what it stands for. `frozen`: of each
/// weight with decay.
void move_weights(const OneBitLambStep& step, const WeightBlocks& blocks, const UpdateRange& range,
                  std::int64_t begin, std::span<const FrozenRatio> frozen,
                  const at::Tensor& direction);

}  // namespace strata
