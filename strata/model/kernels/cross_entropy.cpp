#include <cmath>
#include <limits>

#include "strata/model/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/model/kernels/cross_entropy.cpp"
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

// Sum of exp(z - shift); kStore: the exponentials replace the logits.
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

HWY_INLINE void scale_row(float* z, float factor, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V f = hn::Set(d, factor);
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, z + c), f), d, z + c);
  for (; c < columns; ++c) z[c] *= factor;
}

void CrossEntropy(const float* logits, const std::int64_t* targets, std::int64_t ignored,
                  float* loss, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row, logits += columns) {
    loss[row] = 0;
    if (targets[row] == ignored) continue;
    const float top = largest(logits, columns);
    const float sum = exponential_sum<false>(logits, top, columns);
    loss[row] = std::log(sum) + top - logits[targets[row]];
  }
}

void CrossEntropyWithGradient(float* logits, const std::int64_t* targets, std::int64_t ignored,
                              float scale, float* loss, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row, logits += columns) {
    loss[row] = 0;
    if (targets[row] == ignored) {
      for (std::int64_t c = 0; c < columns; ++c) logits[c] = 0;
      continue;
    }
    const float top = largest(logits, columns);
    const float at_target = logits[targets[row]];
    const float sum = exponential_sum<true>(logits, top, columns);
    loss[row] = std::log(sum) + top - at_target;
    scale_row(logits, scale / sum, columns);
    logits[targets[row]] -= scale;
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(CrossEntropy);
HWY_EXPORT(CrossEntropyWithGradient);

void cross_entropy(const float* logits, const std::int64_t* targets, std::int64_t ignored,
                   float* loss, std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(CrossEntropy)(logits, targets, ignored, loss, rows, columns);
}
void cross_entropy_with_gradient(float* logits, const std::int64_t* targets, std::int64_t ignored,
                                 float scale, float* loss, std::int64_t rows,
                                 std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(CrossEntropyWithGradient)
  (logits, targets, ignored, scale, loss, rows, columns);
}
}  // namespace strata::kernels
#endif
