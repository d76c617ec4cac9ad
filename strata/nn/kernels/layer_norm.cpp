// The variance needs a second pass over the row: a one-pass formula cancels if the mean is large
// compared with the deviation.
#include <cmath>

#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/layer_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/element-inl.h"

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

template <typename T>
HWY_INLINE void normalise(const T* x, const float* gain, const float* bias, float mean, float rstd,
                          T* y, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V m = hn::Set(d, mean), r = hn::Set(d, rstd);
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    const V hat = hn::Mul(hn::Sub(load(d, x + c), m), r);
    store(hn::MulAdd(hat, hn::LoadU(d, gain + c), hn::LoadU(d, bias + c)), d, y + c);
  }
  for (; c < columns; ++c) put(std::fma((get(x + c) - mean) * rstd, gain[c], bias[c]), y + c);
}

template <typename T>
void layer_norm_of(const T* x, const float* gain, const float* bias, T* y, float* mean, float* rstd,
                   std::int64_t rows, std::int64_t columns, float epsilon) {
  const D d;
  const float inverse = 1.0f / static_cast<float>(columns);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const float m =
        inverse * row_sum(
                      columns, [&](V sum, std::int64_t c) { return hn::Add(sum, load(d, x + c)); },
                      [&](std::int64_t c) { return get(x + c); });
    const V mv = hn::Set(d, m);
    const float variance =
        inverse * row_sum(
                      columns,
                      [&](V sum, std::int64_t c) {
                        const V centred = hn::Sub(load(d, x + c), mv);
                        return hn::MulAdd(centred, centred, sum);
                      },
                      [&](std::int64_t c) { return (get(x + c) - m) * (get(x + c) - m); });
    mean[row] = m;
    rstd[row] = 1.0f / std::sqrt(variance + epsilon);
    normalise(x, gain, bias, m, rstd[row], y, columns);
  }
}

template <typename T>
void again_of(const T* x, const float* gain, const float* bias, const float* mean,
              const float* rstd, T* y, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row)
    normalise(x + row * columns, gain, bias, mean[row], rstd[row], y + row * columns, columns);
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gain
template <typename T>
void backward_of(const T* x, const T* dy, const float* gain, const float* mean, const float* rstd,
                 T* dx, std::int64_t rows, std::int64_t columns) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float inverse = 1.0f / static_cast<float>(columns);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, dy += columns, dx += columns) {
    const float m = mean[row], r = rstd[row];
    const V mv = hn::Set(d, m), rv = hn::Set(d, r);
    const float sum_g = row_sum(
        columns,
        [&](V sum, std::int64_t c) {
          return hn::MulAdd(load(d, dy + c), hn::LoadU(d, gain + c), sum);
        },
        [&](std::int64_t c) { return get(dy + c) * gain[c]; });
    const float sum_gx = row_sum(
        columns,
        [&](V sum, std::int64_t c) {
          const V hat = hn::Mul(hn::Sub(load(d, x + c), mv), rv);
          return hn::MulAdd(hn::Mul(load(d, dy + c), hn::LoadU(d, gain + c)), hat, sum);
        },
        [&](std::int64_t c) { return get(dy + c) * gain[c] * ((get(x + c) - m) * r); });
    const float mean_g = sum_g * inverse, mean_gx = sum_gx * inverse;
    const V mg = hn::Set(d, mean_g), mgx = hn::Set(d, mean_gx);
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      const V hat = hn::Mul(hn::Sub(load(d, x + c), mv), rv);
      const V g = hn::Mul(load(d, dy + c), hn::LoadU(d, gain + c));
      store(hn::Mul(rv, hn::NegMulAdd(hat, mgx, hn::Sub(g, mg))), d, dx + c);
    }
    for (; c < columns; ++c) {
      const float hat = (get(x + c) - m) * r;
      put(r * std::fma(-hat, mean_gx, get(dy + c) * gain[c] - mean_g), dx + c);
    }
  }
}

template <typename T>
void weight_gradient_of(const T* x, const T* dy, const float* mean, const float* rstd, float* dgain,
                        float* dbias, std::int64_t rows, std::int64_t columns, std::int64_t begin,
                        std::int64_t end) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = for_each_strip<4>(begin, end, [&](std::int64_t first, auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    V gain[kVectors], bias[kVectors];
    for (int k = 0; k < kVectors; ++k) gain[k] = bias[k] = hn::Zero(d);
    for (std::int64_t row = 0; row < rows; ++row) {
      const V m = hn::Set(d, mean[row]), r = hn::Set(d, rstd[row]);
      for (int k = 0; k < kVectors; ++k) {
        const std::int64_t at = row * columns + first + k * lanes;
        const V g = load(d, dy + at);
        gain[k] = hn::MulAdd(g, hn::Mul(hn::Sub(load(d, x + at), m), r), gain[k]);
        bias[k] = hn::Add(bias[k], g);
      }
    }
    for (int k = 0; k < kVectors; ++k) {
      float* to_gain = dgain + first + k * lanes;
      float* to_bias = dbias + first + k * lanes;
      hn::StoreU(hn::Add(hn::LoadU(d, to_gain), gain[k]), d, to_gain);
      hn::StoreU(hn::Add(hn::LoadU(d, to_bias), bias[k]), d, to_bias);
    }
  });
  for (; c < end; ++c) {
    float gain = 0, bias = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const float g = get(dy + row * columns + c);
      gain = std::fma(g, (get(x + row * columns + c) - mean[row]) * rstd[row], gain);
      bias += g;
    }
    dgain[c] += gain;
    dbias[c] += bias;
  }
}

void LayerNorm(Element element, const void* x, const float* gain, const float* bias, void* y,
               float* mean, float* rstd, std::int64_t rows, std::int64_t columns, float epsilon) {
  STRATA_WITH_ELEMENT(
      element, layer_norm_of(static_cast<const T*>(x), gain, bias, static_cast<T*>(y), mean, rstd,
                             rows, columns, epsilon));
}

void LayerNormAgain(Element element, const void* x, const float* gain, const float* bias,
                    const float* mean, const float* rstd, void* y, std::int64_t rows,
                    std::int64_t columns) {
  STRATA_WITH_ELEMENT(element, again_of(static_cast<const T*>(x), gain, bias, mean, rstd,
                                        static_cast<T*>(y), rows, columns));
}

void LayerNormBackward(Element element, const void* x, const void* dy, const float* gain,
                       const float* mean, const float* rstd, void* dx, std::int64_t rows,
                       std::int64_t columns) {
  STRATA_WITH_ELEMENT(element, backward_of(static_cast<const T*>(x), static_cast<const T*>(dy),
                                           gain, mean, rstd, static_cast<T*>(dx), rows, columns));
}

void LayerNormWeightGradient(Element element, const void* x, const void* dy, const float* mean,
                             const float* rstd, float* dgain, float* dbias, std::int64_t rows,
                             std::int64_t columns, std::int64_t begin, std::int64_t end) {
  STRATA_WITH_ELEMENT(
      element, weight_gradient_of(static_cast<const T*>(x), static_cast<const T*>(dy), mean, rstd,
                                  dgain, dbias, rows, columns, begin, end));
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(LayerNorm);
HWY_EXPORT(LayerNormAgain);
HWY_EXPORT(LayerNormBackward);
HWY_EXPORT(LayerNormWeightGradient);

void layer_norm(Element element, const void* x, const float* gain, const float* bias, void* y,
                float* mean, float* rstd, std::int64_t rows, std::int64_t columns, float epsilon) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)
  (element, x, gain, bias, y, mean, rstd, rows, columns, epsilon);
}
void layer_norm_again(Element element, const void* x, const float* gain, const float* bias,
                      const float* mean, const float* rstd, void* y, std::int64_t rows,
                      std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(LayerNormAgain)(element, x, gain, bias, mean, rstd, y, rows, columns);
}
void layer_norm_backward(Element element, const void* x, const void* dy, const float* gain,
                         const float* mean, const float* rstd, void* dx, std::int64_t rows,
                         std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(LayerNormBackward)(element, x, dy, gain, mean, rstd, dx, rows, columns);
}
void layer_norm_weight_gradient(Element element, const void* x, const void* dy, const float* mean,
                                const float* rstd, float* dgain, float* dbias, std::int64_t rows,
                                std::int64_t columns, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(LayerNormWeightGradient)
  (element, x, dy, mean, rstd, dgain, dbias, rows, columns, begin, end);
}
}  // namespace strata::kernels
#endif
