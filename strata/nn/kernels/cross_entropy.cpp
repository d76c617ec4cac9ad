// A row is summed per vector lane, then across lanes, then the rest: bits depend on the vector
// width, never on the threads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/cross_entropy.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE float largest(const float* z, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V top = hn::Set(d, -std::numeric_limits<float>::infinity());
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) top = hn::Max(top, hn::LoadU(d, z + c));
  float result = hn::GetLane(hn::MaxOfLanes(d, top));
  for (; c < columns; ++c) result = std::fmax(result, z[c]);
  return result;
}

// Sum of exp(z - shift); with kStore the exponentials replace the logits.
template <bool kStore, typename Float>
HWY_INLINE float exponential_sum(Float* z, float shift, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V s = hn::Set(d, shift);
  V sum = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    const V e = hn::Exp(d, hn::Sub(hn::LoadU(d, z + c), s));
    if constexpr (kStore) hn::StoreU(e, d, z + c);
    sum = hn::Add(sum, e);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; c < columns; ++c) {
    const float e = std::exp(z[c] - shift);
    if constexpr (kStore) z[c] = e;
    total += e;
  }
  return total;
}

HWY_INLINE float shifted_sum(const float* z, float shift, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V s = hn::Set(d, shift);
  V sum = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) sum = hn::Add(sum, hn::Sub(hn::LoadU(d, z + c), s));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; c < columns; ++c) total += z[c] - shift;
  return total;
}

// z = z * factor - less
HWY_INLINE void scale_row(float* z, float factor, float less, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V f = hn::Set(d, factor), l = hn::Set(d, less);
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes)
    hn::StoreU(hn::Sub(hn::Mul(hn::LoadU(d, z + c), f), l), d, z + c);
  for (; c < columns; ++c) z[c] = z[c] * factor - less;
}

void LargestLogits(const float* logits, float* top, LogitColumns at, std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; ++row)
    top[row] = largest(logits + row * at.columns, at.valid);
}

// Column of a target's class, or -1 if another rank has it.
HWY_INLINE std::int64_t column_of(std::int64_t target, const LogitColumns& at) {
  const std::int64_t column = target - at.first;
  return column >= 0 && column < at.valid ? column : -1;
}

void SoftmaxSumsOfRows(float* logits, const float* top, const std::int64_t* targets,
                       const CrossEntropy& what, SoftmaxSums sums, std::int64_t rows, bool keep) {
  for (std::int64_t row = 0; row < rows; ++row, logits += what.at.columns) {
    const bool ignored = targets[row] == what.ignored;
    const std::int64_t valid = ignored ? 0 : what.at.valid;
    const std::int64_t column = ignored ? -1 : column_of(targets[row], what.at);
    sums.at_target[row] = column < 0 ? 0 : logits[column];
    if (what.smoothing > 0) sums.shifted[row] = shifted_sum(logits, top[row], valid);
    sums.exponentials[row] = keep ? exponential_sum<true>(logits, top[row], valid)
                                  : exponential_sum<false>(logits, top[row], valid);
  }
}

void CrossEntropyOfRows(const float* top, const std::int64_t* targets, const CrossEntropy& what,
                        SoftmaxSums sums, float* loss, std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] == what.ignored) {
      loss[row] = 0;
      continue;
    }
    const float log_sum = std::log(sums.exponentials[row]);
    loss[row] = log_sum + top[row] - sums.at_target[row];
    if (what.smoothing > 0) {
      const float mean = log_sum - sums.shifted[row] / static_cast<float>(what.at.classes);
      loss[row] = (1 - what.smoothing) * loss[row] + what.smoothing * mean;
    }
  }
}

void CrossEntropyGradient(float* exponentials, const std::int64_t* targets,
                          const CrossEntropy& what, SoftmaxSums sums, std::int64_t rows) {
  const float everywhere = what.scale * what.smoothing / static_cast<float>(what.at.classes);
  const float at_target = what.scale * (1 - what.smoothing);
  for (std::int64_t row = 0; row < rows; ++row, exponentials += what.at.columns) {
    const bool ignored = targets[row] == what.ignored;
    const std::int64_t valid = ignored ? 0 : what.at.valid;
    std::fill(exponentials + valid, exponentials + what.at.columns, 0.0f);
    if (ignored) continue;
    scale_row(exponentials, what.scale / sums.exponentials[row], everywhere, valid);
    const std::int64_t column = column_of(targets[row], what.at);
    if (column >= 0) exponentials[column] -= at_target;
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(LargestLogits);
HWY_EXPORT(SoftmaxSumsOfRows);
HWY_EXPORT(CrossEntropyOfRows);
HWY_EXPORT(CrossEntropyGradient);

void largest_logits(const float* logits, float* top, LogitColumns at, std::int64_t rows) {
  HWY_DYNAMIC_DISPATCH(LargestLogits)(logits, top, at, rows);
}
void softmax_sums(float* logits, const float* top, const std::int64_t* targets,
                  const CrossEntropy& what, SoftmaxSums sums, std::int64_t rows, bool keep) {
  HWY_DYNAMIC_DISPATCH(SoftmaxSumsOfRows)(logits, top, targets, what, sums, rows, keep);
}
void cross_entropy(const float* top, const std::int64_t* targets, const CrossEntropy& what,
                   SoftmaxSums sums, float* loss, std::int64_t rows) {
  HWY_DYNAMIC_DISPATCH(CrossEntropyOfRows)(top, targets, what, sums, loss, rows);
}
void cross_entropy_gradient(float* exponentials, const std::int64_t* targets,
                            const CrossEntropy& what, SoftmaxSums sums, std::int64_t rows) {
  HWY_DYNAMIC_DISPATCH(CrossEntropyGradient)(exponentials, targets, what, sums, rows);
}
}  // namespace strata::kernels
#endif
