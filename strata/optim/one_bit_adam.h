/// Updates weights by momenta that replicas have averaged in one bit an element, with frozen
/// variances.
///
/// The first updates are AdamW's. Then the mean squared gradients v stay as they are, replicas no
/// longer sum gradients, and every replica moves the common momenta m by its own gradients g and
/// sends
///
///     u = (beta1 m + (1 - beta1) replicas g) / (sqrt(v) root_scale + epsilon)
///
/// by OneBitMean of comm/one_bit_mean.h, of which the mean is the direction in which AdamW would
/// move the weights. Momenta divided by the root of their variance have similar magnitudes, so that
/// one scale fits all. A gradient adds at most as much to u as a single large gradient adds to
/// AdamW's direction, so a weight that had no gradients before the variances were frozen does not
/// outweigh the others.
///
/// Source   Tang et al. 2021, "1-bit Adam" (arXiv 2102.02888), which sends m itself.
/// Shapes   flat and of the same length, in host memory; slots: m, v, the errors of what this
///          replica sends, and of what it averages (only its own part is used).
/// Threads  the calling thread's pool; cuts and threads change no bit.
/// Cost     one pass over memory each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/optim/one_bit_kernels.h"
#include "strata/optim/optimizer.h"

namespace strata {

inline constexpr const char* kWorkerError = "worker_error";
inline constexpr const char* kServerError = "server_error";

/// The slots of UpdateRange.
enum OneBitSlot : std::uint8_t {
  kMomentumSlot,
  kVarianceSlot,
  kWorkerErrorSlot,
  kServerErrorSlot,
  kOneBitSlots
};

using kernels::OneBitStep;

/// `update` counts from 1; gradients, one of `replicas`, are multiplied by `gradient_factor`.
OneBitStep one_bit_step(const OptimizerOptions& options, std::int64_t update, double learning_rate,
                        double gradient_factor, int replicas);

/// Adds u to the worker's errors, which then are what it sends.
void add_momenta(const OneBitStep& step, const UpdateRange& range);

/// Moves the weights by the averaged u and sets m to what it stands for.
void move_weights(const OneBitStep& step, const UpdateRange& range, const at::Tensor& mean);

}  // namespace strata
