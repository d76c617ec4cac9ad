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
/// 0/1 Adam refreshes the variances in growing intervals, and lets replicas move apart for a round
/// of updates, each by its own u and m, before they send the sum of the u of all of them
/// (zero_one_intervals.h). The mean of these sums, divided by the updates, is the direction in
/// which the shared weights, from which the round began, then move by all steps of the round.
///
/// Source   Tang et al. 2021, "1-bit Adam" (arXiv 2102.02888), which sends m itself;
///          Lu et al. 2022, "0/1 Adam" (arXiv 2202.06009), which weights each u of a round by
///          its learning rate.
/// Shapes   flat and of the same length, in host memory; slots: m, v, the errors of what this
///          replica sends, and of what it averages (only its own part is used), for 0/1 Adam
///          the shared weights while replicas move apart, and for 1-bit LAMB (one_bit_lamb.h) the
///          fresh variances.
/// Threads  the calling thread's pool; cuts and threads change no bit.
/// Cost     one pass over memory each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/optim/one_bit_kernels.h"
#include "strata/optim/optimizer.h"

namespace strata {

/// In the files of checkpoints.
inline constexpr const char* kMomentum = "exp_avg";
inline constexpr const char* kWorkerError = "worker_error";
inline constexpr const char* kServerError = "server_error";
inline constexpr const char* kSharedWeight = "shared_weight";

/// The slots of UpdateRange.
enum OneBitSlot : std::uint8_t {
  kMomentumSlot,
  kVarianceSlot,
  kWorkerErrorSlot,
  kServerErrorSlot,
  kOneBitSlots,
  kSharedSlot = kOneBitSlots,
  kZeroOneSlots,
  kFreshSlot = kOneBitSlots,
  kOneBitLambSlots
};

using kernels::OneBitStep;

/// `update` counts from 1; gradients, one of `replicas`, are multiplied by `gradient_factor`.
OneBitStep one_bit_step(const OptimizerOptions& options, std::int64_t update, double learning_rate,
                        double gradient_factor, int replicas);

/// Adds u to the worker's errors, which then are what it sends.
void add_momenta(const OneBitStep& step, const UpdateRange& range);

/// Moves the weights by the averaged u and sets m to what it stands for.
void move_weights(const OneBitStep& step, const UpdateRange& range, const at::Tensor& mean);

/// The updates since all replicas had the same weights, which a checkpoint keeps as fp32.
struct SignRound {
  std::int64_t updates = 0;
  float size = 0;  ///< the sum of their OneBitStep::size
  float kept = 1;  ///< the product of their OneBitStep::kept

  SignRound with(const OneBitStep& step) const {
    return {updates + 1, size + step.size, kept * step.kept};
  }
};

/// Moves a replica's own weights and m by its own u, which it adds to its errors. `first`: of a
/// round, which begins with these weights.
void move_apart(const OneBitStep& step, const UpdateRange& range, bool first);

/// Ends a round, the update `step` included: moves the shared weights by the averaged sum of the u,
/// which it overwrites.
void end_round(const SignRound& round, OneBitStep step, const UpdateRange& range,
               const at::Tensor& sum);

}  // namespace strata
