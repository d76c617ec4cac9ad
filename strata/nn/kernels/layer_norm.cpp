#include <cmath>

#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/layer_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Sums f(vector, column) over a row: whole vectors, then the rest one by one.
template <typename VectorTerm, typename ScalarTerm>
HWY_INLINE float row_sum(std::int64_t columns, VectorTerm vector_term, ScalarTerm scalar_term) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sum = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) sum = vector_term(sum, c);
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; c < columns; ++c) total += scalar_term(c);
  return total;
}

HWY_INLINE void normalise(const float* x, const float* gain, const float* bias, float mean,
                          float rstd, float* y, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V m = hn::Set(d, mean), r = hn::Set(d, rstd);
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    const V hat = hn::Mul(hn::Sub(hn::LoadU(d, x + c), m), r);
    hn::StoreU(hn::MulAdd(hat, hn::LoadU(d, gain + c), hn::LoadU(d, bias + c)), d, y + c);
  }
  for (; c < columns; ++c) y[c] = std::fma((x[c] - mean) * rstd, gain[c], bias[c]);
}

void LayerNorm(const float* x, const float* gain, const float* bias, float* y, float* mean,
               float* rstd, std::int64_t rows, std::int64_t columns, float epsilon) {
  const D d;
  const float inverse = 1.0f / static_cast<float>(columns);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const float m =
        inverse * row_sum(
                      columns,
                      [&](V sum, std::int64_t c) { return hn::Add(sum, hn::LoadU(d, x + c)); },
                      [&](std::int64_t c) { return x[c]; });
    const V mv = hn::Set(d, m);
    const float variance = inverse * row_sum(
                                         columns,
                                         [&](V sum, std::int64_t c) {
                                           const V centred = hn::Sub(hn::LoadU(d, x + c), mv);
                                           return hn::MulAdd(centred, centred, sum);
                                         },
                                         [&](std::int64_t c) { return (x[c] - m) * (x[c] - m); });
    mean[row] = m;
    rstd[row] = 1.0f / std::sqrt(variance + epsilon);
    normalise(x, gain, bias, m, rstd[row], y, columns);
  }
}

void LayerNormAgain(const float* x, const float* gain, const float* bias, const float* mean,
                    const float* rstd, float* y, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row)
    normalise(x + row * columns, gain, bias, mean[row], rstd[row], y + row * columns, columns);
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gain
void LayerNormBackward(const float* x, const float* dy, const float* gain, const float* mean,
                       const float* rstd, float* dx, std::int64_t rows, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float inverse = 1.0f / static_cast<float>(columns);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, dy += columns, dx += columns) {
    const float m = mean[row], r = rstd[row];
    const V mv = hn::Set(d, m), rv = hn::Set(d, r);
    const float sum_g = row_sum(
        columns,
        [&](V sum, std::int64_t c) {
          return hn::MulAdd(hn::LoadU(d, dy + c), hn::LoadU(d, gain + c), sum);
        },
        [&](std::int64_t c) { return dy[c] * gain[c]; });
    const float sum_gx = row_sum(
        columns,
        [&](V sum, std::int64_t c) {
          const V hat = hn::Mul(hn::Sub(hn::LoadU(d, x + c), mv), rv);
          return hn::MulAdd(hn::Mul(hn::LoadU(d, dy + c), hn::LoadU(d, gain + c)), hat, sum);
        },
        [&](std::int64_t c) { return dy[c] * gain[c] * ((x[c] - m) * r); });
    const float mean_g = sum_g * inverse, mean_gx = sum_gx * inverse;
    const V mg = hn::Set(d, mean_g), mgx = hn::Set(d, mean_gx);
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      const V hat = hn::Mul(hn::Sub(hn::LoadU(d, x + c), mv), rv);
      const V g = hn::Mul(hn::LoadU(d, dy + c), hn::LoadU(d, gain + c));
      hn::StoreU(hn::Mul(rv, hn::NegMulAdd(hat, mgx, hn::Sub(g, mg))), d, dx + c);
    }
    for (; c < columns; ++c) {
      const float hat = (x[c] - m) * r;
      dx[c] = r * std::fma(-hat, mean_gx, dy[c] * gain[c] - mean_g);
    }
  }
}

void LayerNormWeightGradient(const float* x, const float* dy, const float* mean, const float* rstd,
                             float* dgain, float* dbias, std::int64_t rows, std::int64_t columns,
                             std::int64_t begin, std::int64_t end) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // A strip of four vectors stays in registers while the rows go by.
  constexpr int kStrip = 4;
  std::int64_t c = begin;
  for (; c + kStrip * lanes <= end; c += kStrip * lanes) {
    V gain[kStrip], bias[kStrip];
    for (int k = 0; k < kStrip; ++k) gain[k] = bias[k] = hn::Zero(d);
    for (std::int64_t row = 0; row < rows; ++row) {
      const V m = hn::Set(d, mean[row]), r = hn::Set(d, rstd[row]);
      for (int k = 0; k < kStrip; ++k) {
        const std::int64_t at = row * columns + c + k * lanes;
        const V g = hn::LoadU(d, dy + at);
        gain[k] = hn::MulAdd(g, hn::Mul(hn::Sub(hn::LoadU(d, x + at), m), r), gain[k]);
        bias[k] = hn::Add(bias[k], g);
      }
    }
    for (int k = 0; k < kStrip; ++k) {
      float* to_gain = dgain + c + k * lanes;
      float* to_bias = dbias + c + k * lanes;
      hn::StoreU(hn::Add(hn::LoadU(d, to_gain), gain[k]), d, to_gain);
      hn::StoreU(hn::Add(hn::LoadU(d, to_bias), bias[k]), d, to_bias);
    }
  }
  for (; c < end; ++c) {
    float gain = 0, bias = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const float g = dy[row * columns + c];
      gain = std::fma(g, (x[row * columns + c] - mean[row]) * rstd[row], gain);
      bias += g;
    }
    dgain[c] += gain;
    dbias[c] += bias;
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(LayerNorm);
HWY_EXPORT(LayerNormAgain);
HWY_EXPORT(LayerNormBackward);
HWY_EXPORT(LayerNormWeightGradient);

void layer_norm(const float* x, const float* gain, const float* bias, float* y, float* mean,
                float* rstd, std::int64_t rows, std::int64_t columns, float epsilon) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(x, gain, bias, y, mean, rstd, rows, columns, epsilon);
}
void layer_norm_again(const float* x, const float* gain, const float* bias, const float* mean,
                      const float* rstd, float* y, std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(LayerNormAgain)(x, gain, bias, mean, rstd, y, rows, columns);
}
void layer_norm_backward(const float* x, const float* dy, const float* gain, const float* mean,
                         const float* rstd, float* dx, std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(LayerNormBackward)(x, dy, gain, mean, rstd, dx, rows, columns);
}
void layer_norm_weight_gradient(const float* x, const float* dy, const float* mean,
                                const float* rstd, float* dgain, float* dbias, std::int64_t rows,
                                std::int64_t columns, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(LayerNormWeightGradient)
  (x, dy, mean, rstd, dgain, dbias, rows, columns, begin, end);
}
}  // namespace strata::kernels
#endif
