#include <cmath>

#include "strata/nn/kernels/llama_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/rms_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE void scale_row(const float* x, const float* gain, float rstd, float* y,
                          std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V r = hn::Set(d, rstd);
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes)
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + c), r), hn::LoadU(d, gain + c)), d, y + c);
  for (; c < columns; ++c) y[c] = x[c] * rstd * gain[c];
}

void RmsNorm(const float* x, const float* gain, float* y, float* rstd, std::int64_t rows,
             std::int64_t columns, float epsilon) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    V sum = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      const V v = hn::LoadU(d, x + c);
      sum = hn::MulAdd(v, v, sum);
    }
    float squares = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; c < columns; ++c) squares += x[c] * x[c];
    rstd[row] = 1.0f / std::sqrt(squares / static_cast<float>(columns) + epsilon);
    scale_row(x, gain, rstd[row], y, columns);
  }
}

void RmsNormAgain(const float* x, const float* gain, const float* rstd, float* y, std::int64_t rows,
                  std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row)
    scale_row(x + row * columns, gain, rstd[row], y + row * columns, columns);
}

// dx = rstd (g - xhat mean(g xhat)) with g = dy gain, xhat = x rstd
void RmsNormBackward(const float* x, const float* dy, const float* gain, const float* rstd,
                     float* dx, std::int64_t rows, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < rows; ++row, x += columns, dy += columns, dx += columns) {
    const float r = rstd[row];
    V sum = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      const V g = hn::Mul(hn::LoadU(d, dy + c), hn::LoadU(d, gain + c));
      sum = hn::MulAdd(g, hn::LoadU(d, x + c), sum);
    }
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; c < columns; ++c) total += dy[c] * gain[c] * x[c];
    const float share = total * r * r / static_cast<float>(columns);  // mean(g xhat) rstd
    const V rv = hn::Set(d, r), sv = hn::Set(d, share);
    for (c = 0; c + lanes <= columns; c += lanes) {
      const V g = hn::Mul(hn::LoadU(d, dy + c), hn::LoadU(d, gain + c));
      hn::StoreU(hn::Mul(rv, hn::NegMulAdd(hn::LoadU(d, x + c), sv, g)), d, dx + c);
    }
    for (; c < columns; ++c) dx[c] = r * std::fma(-x[c], share, dy[c] * gain[c]);
  }
}

void RmsNormWeightGradient(const float* x, const float* dy, const float* rstd, float* dgain,
                           std::int64_t rows, std::int64_t columns, std::int64_t begin,
                           std::int64_t end) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // A strip of four vectors stays in registers while the rows go by.
  constexpr int kStrip = 4;
  std::int64_t c = begin;
  for (; c + kStrip * lanes <= end; c += kStrip * lanes) {
    V gain[kStrip];
    for (int k = 0; k < kStrip; ++k) gain[k] = hn::Zero(d);
    for (std::int64_t row = 0; row < rows; ++row) {
      const V r = hn::Set(d, rstd[row]);
      for (int k = 0; k < kStrip; ++k) {
        const std::int64_t at = row * columns + c + k * lanes;
        gain[k] = hn::MulAdd(hn::LoadU(d, dy + at), hn::Mul(hn::LoadU(d, x + at), r), gain[k]);
      }
    }
    for (int k = 0; k < kStrip; ++k) {
      float* to = dgain + c + k * lanes;
      hn::StoreU(hn::Add(hn::LoadU(d, to), gain[k]), d, to);
    }
  }
  for (; c < end; ++c) {
    float gain = 0;
    for (std::int64_t row = 0; row < rows; ++row)
      gain = std::fma(dy[row * columns + c], x[row * columns + c] * rstd[row], gain);
    dgain[c] += gain;
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(RmsNorm);
HWY_EXPORT(RmsNormAgain);
HWY_EXPORT(RmsNormBackward);
HWY_EXPORT(RmsNormWeightGradient);

void rms_norm(const float* x, const float* gain, float* y, float* rstd, std::int64_t rows,
              std::int64_t columns, float epsilon) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, gain, y, rstd, rows, columns, epsilon);
}
void rms_norm_again(const float* x, const float* gain, const float* rstd, float* y,
                    std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(RmsNormAgain)(x, gain, rstd, y, rows, columns);
}
void rms_norm_backward(const float* x, const float* dy, const float* gain, const float* rstd,
                       float* dx, std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(RmsNormBackward)(x, dy, gain, rstd, dx, rows, columns);
}
void rms_norm_weight_gradient(const float* x, const float* dy, const float* rstd, float* dgain,
                              std::int64_t rows, std::int64_t columns, std::int64_t begin,
                              std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(RmsNormWeightGradient)(x, dy, rstd, dgain, rows, columns, begin, end);
}
}  // namespace strata::kernels
#endif
