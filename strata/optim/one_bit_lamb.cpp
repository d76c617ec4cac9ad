#include "strata/optim/one_bit_lamb.h"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/device/parallel.h"
#include "strata/optim/lamb_kernels.h"

namespace strata {
namespace {

constexpr const char* kOneBitLamb = "optim.one_bit_lamb";

// Calls f(begin, end) for the parts of `whole` that no padding covers.
template <typename F>
void without_padding(FlatRange whole, std::span<const FlatRange> padding, F f) {
  std::int64_t next = whole.begin;
  for (const FlatRange& gap : padding) {
    if (gap.end <= next) continue;
    if (gap.begin >= whole.end) break;
    if (next < gap.begin) f(next, gap.begin);
    next = gap.end;
  }
  if (next < whole.end) f(next, whole.end);
}

const float* const_floats(const at::Tensor& x, std::int64_t numel) {
  STRATA_CHECK(x.is_cpu() && x.is_contiguous() && x.scalar_type() == at::kFloat, kOneBitLamb);
  STRATA_CHECK_EQ(x.numel(), numel, kOneBitLamb);
  return x.const_data_ptr<float>();
}

// The elements that a range, which begins with element `begin` of the layer, has of a weight.
FlatRange elements_of(const WeightBlocks::Weight& weight, const UpdateRange& range,
                      std::int64_t begin) {
  return {std::max(weight.elements.begin, begin),
          std::min(weight.elements.end, begin + range.weights.numel())};
}

}  // namespace

FrozenRatios::FrozenRatios(const WeightBlocks& blocks)
    : numbers_(at::ones({std::ssize(blocks.weights()), 2}, host_options(at::kFloat))) {}

std::vector<FrozenRatio> FrozenRatios::all() const {
  const float* numbers = numbers_.const_data_ptr<float>();
  std::vector<FrozenRatio> ratios;
  for (std::int64_t i = 0; i < numbers_.size(0); ++i)
    ratios.push_back({.mean = numbers[2 * i], .factor = numbers[2 * i + 1]});
  return ratios;
}

void FrozenRatios::set(std::size_t weight, FrozenRatio ratio) const {
  float* numbers = numbers_.mutable_data_ptr<float>() + 2 * weight;
  numbers[0] = ratio.mean;
  numbers[1] = ratio.factor;
}

FrozenRatio with_ratio(const OptimizerOptions& options, FrozenRatio frozen, std::int64_t update,
                       double ratio) {
  const double share =
      (1 - options.coeff_beta) / (1 - std::pow(options.coeff_beta, static_cast<double>(update)));
  frozen.mean = static_cast<float>(frozen.mean + share * (ratio - frozen.mean));
  return frozen;
}

FrozenRatio with_factor(const OptimizerOptions& options, FrozenRatio frozen, double largest) {
  const double last = frozen.factor;
  const double wanted = std::clamp(largest, options.factor_min, options.factor_max);
  frozen.factor = static_cast<float>(std::clamp(wanted, last * (1 - options.factor_threshold),
                                                last * (1 + options.factor_threshold)));
  return frozen;
}

OneBitLambStep one_bit_lamb_step(const OptimizerOptions& options, std::int64_t update,
                                 double learning_rate, double gradient_factor, int replicas) {
  const double kept = std::pow(options.beta2, static_cast<double>(update));
  return {.adam = one_bit_step(options, update, learning_rate, gradient_factor, replicas),
          .fresh = {.square_kept = static_cast<float>(options.beta2),
                    .square_share = static_cast<float>(1 - options.beta2),
                    .gradient_scale = static_cast<float>(1 / (1 - options.beta1)),
                    .root_scale = static_cast<float>(1 / std::sqrt(1 - kept))},
          .first = update == options.freeze_step + 1,
          .learning_rate = learning_rate,
          .weight_decay = options.weight_decay};
}

std::vector<double> refresh_variances(const OneBitLambStep& step, const WeightBlocks& blocks,
                                      const UpdateRange& range, std::int64_t begin,
                                      std::span<const FlatRange> padding,
                                      const at::Tensor& direction) {
  const std::int64_t numel = range.weights.numel();
  const float* directions = const_floats(direction, numel);
  const float* momenta = const_floats(range.slots.at(kMomentumSlot), numel);
  const float* variances = const_floats(range.slots.at(kVarianceSlot), numel);
  const at::Tensor& fresh = range.slots.at(kFreshSlot);
  if (step.first) fresh.copy_(range.slots[kVarianceSlot]);
  const_floats(fresh, numel);
  float* written = fresh.data_ptr<float>();
  std::vector<double> largest;
  for (const WeightBlocks::Weight& weight : blocks.weights()) {
    float of_weight = 0;
    without_padding(
        elements_of(weight, range, begin), padding, [&](std::int64_t first, std::int64_t last) {
          const std::int64_t offset = first - begin;
          std::mutex mutex;
          parallel_ranges(last - first, kLeastElements, [&](auto from, auto to) {
            const float found = kernels::refresh_variances(
                step.adam, step.fresh, directions + offset + from, momenta + offset + from,
                variances + offset + from, written + offset + from, to - from);
            const std::lock_guard lock(mutex);
            of_weight = std::max(of_weight, found);
          });
        });
    largest.push_back(of_weight);
  }
  return largest;
}

void move_weights(const OneBitLambStep& step, const WeightBlocks& blocks, const UpdateRange& range,
                  std::int64_t begin, std::span<const FrozenRatio> frozen,
                  const at::Tensor& direction) {
  STRATA_CHECK_EQ(frozen.size(), blocks.weights().size(), kOneBitLamb);
  const auto move = [&](const OneBitStep& by, FlatRange part) {
    if (part.size() > 0)
      move_weights(by, narrowed(range, part), direction.narrow(0, part.begin, part.size()));
  };
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    const double ratio = double{frozen[i].mean} * double{frozen[i].factor};
    const FlatRange elements = elements_of(blocks.weights()[i], range, begin);
    OneBitStep scaled = step.adam;
    scaled.size = static_cast<float>(step.adam.size * ratio);
    scaled.kept = static_cast<float>(1 - step.learning_rate * ratio * step.weight_decay);
    move(scaled, {elements.begin - begin, elements.end - begin});
  }
  move(step.adam, {range.decay_numel, range.weights.numel()});
}

}  // namespace strata
