#include "strata/optim/one_bit_adam.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "strata/base/errors.h"
#include "strata/device/parallel.h"
#include "strata/optim/host_weights.h"

namespace strata {
namespace {

constexpr std::int64_t kCacheLine = 64;  // elements: threads never write to the same cache line

// Moves n weights, the first of which decay.
void move_by(const OneBitStep& step, std::int64_t decay_numel, const float* directions,
             const float* variances, float* momenta, float* weights, std::int64_t n) {
  const std::int64_t decayed = std::clamp<std::int64_t>(decay_numel, 0, n);
  for (const auto& [from, to, kept] :
       {std::tuple(std::int64_t{0}, decayed, step.kept), {decayed, n, 1.0f}})
    kernels::move_weights(step, directions + from, variances + from, momenta + from, weights + from,
                          kept, to - from);
}

}  // namespace

OneBitStep one_bit_step(const OptimizerOptions& options, std::int64_t update, double learning_rate,
                        double gradient_factor, int replicas) {
  const double share = 1 - options.beta1;
  return {.momentum_kept = static_cast<float>(options.beta1),
          .gradient_share = static_cast<float>(share * replicas * gradient_factor),
          .most = static_cast<float>(share / std::sqrt(1 - options.beta2)),
          .root_scale = static_cast<float>(
              1 / std::sqrt(1 - std::pow(options.beta2,
                                         static_cast<double>(variance_updates(options, update))))),
          .epsilon = static_cast<float>(options.epsilon),
          .size = static_cast<float>(learning_rate /
                                     (1 - std::pow(options.beta1, static_cast<double>(update)))),
          .kept = static_cast<float>(1 - learning_rate * options.weight_decay)};
}

void add_momenta(const OneBitStep& step, const UpdateRange& range) {
  const std::int64_t numel = range.gradients.numel();
  const float* gradients = host_floats(range.gradients, numel);
  const float* momenta = host_floats(range.slots.at(kMomentumSlot), numel);
  const float* variances = host_floats(range.slots.at(kVarianceSlot), numel);
  float* sent = host_floats(range.slots.at(kWorkerErrorSlot), numel);
  parallel_ranges(
      numel, kLeastElements,
      [&](std::int64_t begin, std::int64_t end) {
        kernels::add_momenta(step, gradients + begin, momenta + begin, variances + begin,
                             sent + begin, end - begin);
      },
      kCacheLine);
}

void move_weights(const OneBitStep& step, const UpdateRange& range, const at::Tensor& mean) {
  const std::int64_t numel = mean.numel();
  STRATA_CHECK(range.weights.is_cpu() && range.weights.is_contiguous(), "optim.one_bit");
  STRATA_CHECK_EQ(range.weights.numel(), numel, "optim.one_bit");
  const float* directions = host_floats(mean, numel);
  const float* variances = host_floats(range.slots.at(kVarianceSlot), numel);
  float* momenta = host_floats(range.slots.at(kMomentumSlot), numel);
  const auto move = [&](float* weights, std::int64_t begin, std::int64_t n) {
    move_by(step, range.decay_numel - begin, directions + begin, variances + begin, momenta + begin,
            weights, n);
  };
  parallel_ranges(
      numel, kLeastElements,
      [&](std::int64_t begin, std::int64_t end) { change_weights(range, begin, end, move); },
      kCacheLine);
  if (range.rounded.defined()) range.rounded.copy_(range.weights);
}

// In pieces that stay in the cache: u is read three times.
void move_apart(const OneBitStep& step, const UpdateRange& range, bool first) {
  const std::int64_t numel = range.gradients.numel();
  const float* gradients = host_floats(range.gradients, numel);
  const float* variances = host_floats(range.slots.at(kVarianceSlot), numel);
  float* momenta = host_floats(range.slots.at(kMomentumSlot), numel);
  float* sums = host_floats(range.slots.at(kWorkerErrorSlot), numel);
  float* shared = host_floats(range.slots.at(kSharedSlot), numel);
  const auto move = [&](float* weights, std::int64_t begin, std::int64_t n) {
    if (first) std::copy_n(weights, n, shared + begin);
    constexpr std::int64_t kPiece = 1024;
    float directions[kPiece];
    for (std::int64_t at = begin; at < begin + n; at += kPiece) {
      const std::int64_t size = std::min(kPiece, begin + n - at);
      std::fill_n(directions, size, 0.0f);
      kernels::add_momenta(step, gradients + at, momenta + at, variances + at, directions, size);
      for (std::int64_t i = 0; i < size; ++i) sums[at + i] += directions[i];
      move_by(step, range.decay_numel - at, directions, variances + at, momenta + at,
              weights + (at - begin), size);
    }
  };
  parallel_ranges(
      numel, kLeastElements,
      [&](std::int64_t begin, std::int64_t end) { change_weights(range, begin, end, move); },
      kCacheLine);
  if (range.rounded.defined()) range.rounded.copy_(range.weights);
}

void end_round(const SignRound& round, OneBitStep step, const UpdateRange& range,
               const at::Tensor& sum) {
  step.size = round.size;
  step.kept = round.kept;
  if (round.updates > 1) {
    const float* shared = host_floats(range.slots.at(kSharedSlot), sum.numel());
    const auto restore = [&](float* weights, std::int64_t begin, std::int64_t n) {
      std::copy_n(shared + begin, n, weights);
    };
    parallel_ranges(
        sum.numel(), kLeastElements,
        [&](std::int64_t begin, std::int64_t end) { change_weights(range, begin, end, restore); },
        kCacheLine);
    sum.div_(static_cast<double>(round.updates));
  }
  move_weights(step, range, sum);
}

}  // namespace strata
