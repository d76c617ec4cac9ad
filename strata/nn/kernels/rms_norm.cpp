// Like layer_norm.cpp, without a mean.
#include <cmath>

#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/rms_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <typename T>
HWY_INLINE void scale_row(const T* x, const float* gain, float rstd, T* y, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V r = hn::Set(d, rstd);
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes)
    store(hn::Mul(hn::Mul(load(d, x + c), r), hn::LoadU(d, gain + c)), d, y + c);
  for (; c < columns; ++c) put(get(x + c) * rstd * gain[c], y + c);
}

template <typename T>
void rms_norm_of(const T* x, const float* gain, T* y, float* rstd, std::int64_t rows,
                 std::int64_t columns, float epsilon) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    V sum = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      const V v = load(d, x + c);
      sum = hn::MulAdd(v, v, sum);
    }
    float squares = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; c < columns; ++c) squares += get(x + c) * get(x + c);
    rstd[row] = 1.0f / std::sqrt(squares / static_cast<float>(columns) + epsilon);
    scale_row(x, gain, rstd[row], y, columns);
  }
}

template <typename T>
void again_of(const T* x, const float* gain, const float* rstd, T* y, std::int64_t rows,
              std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row)
    scale_row(x + row * columns, gain, rstd[row], y + row * columns, columns);
}

// dx = rstd (g - xhat mean(g xhat)) with g = dy gain, xhat = x rstd
template <typename T>
void backward_of(const T* x, const T* dy, const float* gain, const float* rstd, T* dx,
                 std::int64_t rows, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < rows; ++row, x += columns, dy += columns, dx += columns) {
    const float r = rstd[row];
    V sum = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      const V g = hn::Mul(load(d, dy + c), hn::LoadU(d, gain + c));
      sum = hn::MulAdd(g, load(d, x + c), sum);
    }
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; c < columns; ++c) total += get(dy + c) * gain[c] * get(x + c);
    const float share = total * r * r / static_cast<float>(columns);  // mean(g xhat) rstd
    const V rv = hn::Set(d, r), sv = hn::Set(d, share);
    for (c = 0; c + lanes <= columns; c += lanes) {
      const V g = hn::Mul(load(d, dy + c), hn::LoadU(d, gain + c));
      store(hn::Mul(rv, hn::NegMulAdd(load(d, x + c), sv, g)), d, dx + c);
    }
    for (; c < columns; ++c) put(r * std::fma(-get(x + c), share, get(dy + c) * gain[c]), dx + c);
  }
}

template <typename T>
void weight_gradient_of(const T* x, const T* dy, const float* rstd, float* dgain, std::int64_t rows,
                        std::int64_t columns, std::int64_t begin, std::int64_t end) {
  const D d;
  add_columns<4>(
      dgain, rows, columns, begin, end,
      [&](V total, std::int64_t row, std::int64_t at) {
        const V normed = hn::Mul(load(d, x + at), hn::Set(d, rstd[row]));
        return hn::MulAdd(load(d, dy + at), normed, total);
      },
      [&](float total, std::int64_t row, std::int64_t at) {
        return std::fma(get(dy + at), get(x + at) * rstd[row], total);
      });
}

void RmsNorm(Element element, const void* x, const float* gain, void* y, float* rstd,
             std::int64_t rows, std::int64_t columns, float epsilon) {
  STRATA_WITH_ELEMENT(element, rms_norm_of(static_cast<const T*>(x), gain, static_cast<T*>(y), rstd,
                                           rows, columns, epsilon));
}

void RmsNormAgain(Element element, const void* x, const float* gain, const float* rstd, void* y,
                  std::int64_t rows, std::int64_t columns) {
  STRATA_WITH_ELEMENT(
      element, again_of(static_cast<const T*>(x), gain, rstd, static_cast<T*>(y), rows, columns));
}

void RmsNormBackward(Element element, const void* x, const void* dy, const float* gain,
                     const float* rstd, void* dx, std::int64_t rows, std::int64_t columns) {
  STRATA_WITH_ELEMENT(element, backward_of(static_cast<const T*>(x), static_cast<const T*>(dy),
                                           gain, rstd, static_cast<T*>(dx), rows, columns));
}

void RmsNormWeightGradient(Element element, const void* x, const void* dy, const float* rstd,
                           float* dgain, std::int64_t rows, std::int64_t columns,
                           std::int64_t begin, std::int64_t end) {
  STRATA_WITH_ELEMENT(
      element, weight_gradient_of(static_cast<const T*>(x), static_cast<const T*>(dy), rstd, dgain,
                                  rows, columns, begin, end));
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(RmsNorm);
HWY_EXPORT(RmsNormAgain);
HWY_EXPORT(RmsNormBackward);
HWY_EXPORT(RmsNormWeightGradient);

void rms_norm(Element element, const void* x, const float* gain, void* y, float* rstd,
              std::int64_t rows, std::int64_t columns, float epsilon) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(element, x, gain, y, rstd, rows, columns, epsilon);
}
void rms_norm_again(Element element, const void* x, const float* gain, const float* rstd, void* y,
                    std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(RmsNormAgain)(element, x, gain, rstd, y, rows, columns);
}
void rms_norm_backward(Element element, const void* x, const void* dy, const float* gain,
                       const float* rstd, void* dx, std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(RmsNormBackward)(element, x, dy, gain, rstd, dx, rows, columns);
}
void rms_norm_weight_gradient(Element element, const void* x, const void* dy, const float* rstd,
                              float* dgain, std::int64_t rows, std::int64_t columns,
                              std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(RmsNormWeightGradient)
  (element, x, dy, rstd, dgain, rows, columns, begin, end);
}
}  // namespace strata::kernels
#endif
