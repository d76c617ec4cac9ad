#include "strata/optim/one_bit_adam.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "strata/base/errors.h"
#include "strata/device/parallel.h"

namespace strata {
namespace {

constexpr std::int64_t kCacheLine = 64;  // elements: threads never write to the same cache line

float* host_floats(const at::Tensor& x, std::int64_t numel) {
  STRATA_CHECK(x.is_cpu() && x.is_contiguous() && x.scalar_type() == at::kFloat, "optim.one_bit");
  STRATA_CHECK_EQ(x.numel(), numel, "optim.one_bit");
  return x.data_ptr<float>();
}

// Calls f(weights, begin, n) for pieces of the fp32 weights; those in halves are joined piece by
// piece in the cache.
template <typename F>
void for_weights(const UpdateRange& range, std::int64_t begin, std::int64_t end, F f) {
  if (!range.remainder.defined())
    return f(range.weights.data_ptr<float>() + begin, begin, end - begin);
  constexpr std::int64_t kPiece = 1024;
  float joined[kPiece];
  for (; begin < end; begin += kPiece) {
    const std::int64_t n = std::min(kPiece, end - begin);
    const kernels::SplitWeights halves{
        static_cast<std::uint16_t*>(range.weights.data_ptr()) + begin,
        static_cast<std::uint16_t*>(range.remainder.data_ptr()) + begin};
    kernels::join_weights(halves, joined, n);
    f(joined, begin, n);
    kernels::split_weights(joined, halves, n);
  }
}

}  // namespace

OneBitStep one_bit_step(const OptimizerOptions& options, std::int64_t update, double learning_rate,
                        double gradient_factor, int replicas) {
  const double share = 1 - options.beta1;
  return {.momentum_kept = static_cast<float>(options.beta1),
          .gradient_share = static_cast<float>(share * replicas * gradient_factor),
          .most = static_cast<float>(share / std::sqrt(1 - options.beta2)),
          .root_scale = static_cast<float>(
              1 / std::sqrt(1 - std::pow(options.beta2, static_cast<double>(options.freeze_step)))),
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
    const std::int64_t decayed = std::clamp<std::int64_t>(range.decay_numel - begin, 0, n);
    for (const auto& [from, to, kept] :
         {std::tuple(std::int64_t{0}, decayed, step.kept), {decayed, n, 1.0f}})
      kernels::move_weights(step, directions + begin + from, variances + begin + from,
                            momenta + begin + from, weights + from, kept, to - from);
  };
  parallel_ranges(
      numel, kLeastElements,
      [&](std::int64_t begin, std::int64_t end) { for_weights(range, begin, end, move); },
      kCacheLine);
  if (range.rounded.defined()) range.rounded.copy_(range.weights);
}

}  // namespace strata
