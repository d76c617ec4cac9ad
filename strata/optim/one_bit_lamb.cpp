#include "strata/optim/one_bit_lamb.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "strata/base/errors.h"
#include "strata/device/parallel.h"
#include "strata/optim/host_weights.h"
#include "strata/optim/lamb_kernels.h"

namespace strata {
namespace {

// Calls f(begin, end) for the parts of `whole` that no padding covers.
template <typename F>
void without_padding(FlatRange whole, std::span<const FlatRange> padding, F f) {
  std::int64_t next = whole.begin;
  for (auto gap = std::ranges::upper_bound(padding, next, {}, &FlatRange::end);
       gap != padding.end() && gap->begin < whole.end; ++gap) {
    if (next < gap->begin) f(next, gap->begin);
    next = gap->end;
  }
  if (next < whole.end) f(next, whole.end);
}

// The larger of two factors; NaN if either is.
float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }

// The arrays of a range, which begins with element `begin` of the layer.
struct FreshArrays {
  std::int64_t begin;
  const float *directions, *momenta, *variances;
  float* fresh;

  // Elements of the layer.
  float refresh(const OneBitLambStep& step, std::int64_t from, std::int64_t to) const {
    const std::int64_t at = from - begin;
    return kernels::refresh_variances(step.adam, step.fresh, directions + at, momenta + at,
                                      variances + at, fresh + at, to - from);
  }
};

// Of elements of one weight.
float refresh_weight(const OneBitLambStep& step, const FreshArrays& arrays, FlatRange part,
                     std::span<const FlatRange> padding) {
  float largest = 0;
  std::mutex mutex;
  parallel_ranges(
      part.size(), kLeastElements,
      [&](std::int64_t begin, std::int64_t end) {
        float found = 0;
        without_padding({part.begin + begin, part.begin + end}, padding,
                        [&](std::int64_t from, std::int64_t to) {
                          found = larger(found, arrays.refresh(step, from, to));
                        });
        const std::lock_guard lock(mutex);
        largest = larger(largest, found);
      },
      kColumnUnit);
  return largest;
}

}  // namespace

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
                                 double learning_rate, const OneBitStep& adam) {
  const double kept = std::pow(options.beta2, static_cast<double>(update));
  return {.adam = adam,
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
  const at::Tensor &variances = range.slots.at(kVarianceSlot), &fresh = range.slots.at(kFreshSlot);
  const FreshArrays arrays{.begin = begin,
                           .directions = host_floats(direction, numel),
                           .momenta = host_floats(range.slots.at(kMomentumSlot), numel),
                           .variances = host_floats(variances, numel),
                           .fresh = host_floats(fresh, numel)};
  if (step.first) fresh.copy_(variances);
  std::vector<double> largest;
  for (const WeightBlocks::Weight& weight : blocks.weights())
    largest.push_back(
        refresh_weight(step, arrays, weight.part_in({begin, begin + numel}), padding));
  return largest;
}

void move_weights(const OneBitLambStep& step, const WeightBlocks& blocks, const UpdateRange& range,
                  std::int64_t begin, std::span<const FrozenRatio> frozen,
                  const at::Tensor& direction) {
  STRATA_CHECK_EQ(frozen.size(), blocks.weights().size(), "optim.one_bit_lamb");
  const FlatRange held{begin, begin + range.weights.numel()};
  const auto move = [&](const OneBitStep& by, FlatRange part) {
    if (part.size() > 0)
      move_weights(by, narrowed(range, part), direction.narrow(0, part.begin, part.size()));
  };
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    const double ratio = double{frozen[i].mean} * double{frozen[i].factor};
    const FlatRange part = blocks.weights()[i].part_in(held);
    OneBitStep scaled = step.adam;
    scaled.size = static_cast<float>(step.adam.size * ratio);
    scaled.kept = static_cast<float>(1 - step.learning_rate * ratio * step.weight_decay);
    move(scaled, {part.begin - begin, part.end - begin});
  }
  move(step.adam, {range.decay_numel, range.weights.numel()});
}

}  // namespace strata
