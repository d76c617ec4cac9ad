// Each vector of columns is processed over all rows, so that one thread computes each number, in
// row order. The variance needs a second pass, as in layer_norm.cpp.
#include <cstdint>

#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/batch_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(first, n) for the vectors of the columns [begin, end).
template <typename Body>
HWY_INLINE void for_each_vector(std::int64_t begin, std::int64_t end, Body body) {
  for_each_partial(end - begin,
                   [&](std::int64_t c, std::int64_t count) { body(begin + c, count); });
}

HWY_INLINE FloatVector inverse_deviation(const BatchNormColumns& norm, std::int64_t c,
                                         std::int64_t count) {
  const FloatTag d;
  const FloatVector variance = load_partial(norm.variance + c, count);
  return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(hn::Add(variance, hn::Set(d, norm.epsilon))));
}

void BatchStatistics(const float* x, float* mean, float* variance, std::int64_t rows,
                     std::int64_t columns, std::int64_t begin, std::int64_t end) {
  const FloatTag d;
  const FloatVector count_of_rows = hn::Set(d, static_cast<float>(rows));
  for_each_vector(begin, end, [&](std::int64_t c, std::int64_t count) {
    FloatVector sum = hn::Zero(d);
    for (std::int64_t row = 0; row < rows; ++row)
      sum = hn::Add(sum, load_partial(x + row * columns + c, count));
    const FloatVector center = hn::Div(sum, count_of_rows);
    FloatVector squares = hn::Zero(d);
    for (std::int64_t row = 0; row < rows; ++row) {
      const FloatVector off = hn::Sub(load_partial(x + row * columns + c, count), center);
      squares = hn::MulAdd(off, off, squares);
    }
    store_partial(center, mean + c, count);
    store_partial(hn::Div(squares, count_of_rows), variance + c, count);
  });
}

void BatchNorm(const float* x, const BatchNormColumns& norm, float* y, std::int64_t rows,
               std::int64_t columns, std::int64_t begin, std::int64_t end) {
  for_each_vector(begin, end, [&](std::int64_t c, std::int64_t count) {
    const FloatVector center = load_partial(norm.mean + c, count);
    const FloatVector scale = inverse_deviation(norm, c, count);
    const FloatVector gain = load_partial(norm.gain + c, count);
    const FloatVector bias = load_partial(norm.bias + c, count);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row * columns + c;
      const FloatVector hat = hn::Mul(hn::Sub(load_partial(x + at, count), center), scale);
      store_partial(hn::MulAdd(hat, gain, bias), y + at, count);
    }
  });
}

void BatchNormBackward(const float* x, float* dy, const BatchNormColumns& norm, float* dgain,
                       float* dbias, std::int64_t rows, std::int64_t columns, std::int64_t begin,
                       std::int64_t end) {
  const FloatTag d;
  const FloatVector share = hn::Set(d, 1.0f / static_cast<float>(rows));
  for_each_vector(begin, end, [&](std::int64_t c, std::int64_t count) {
    const FloatVector center = load_partial(norm.mean + c, count);
    const FloatVector scale = inverse_deviation(norm, c, count);
    const auto hat_at = [&](std::int64_t at) HWY_ATTR {
      return hn::Mul(hn::Sub(load_partial(x + at, count), center), scale);
    };
    FloatVector gain = hn::Zero(d), bias = hn::Zero(d);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row * columns + c;
      const FloatVector gradient = load_partial(dy + at, count);
      gain = hn::MulAdd(gradient, hat_at(at), gain);
      bias = hn::Add(bias, gradient);
    }
    store_partial(hn::Add(load_partial(dgain + c, count), gain), dgain + c, count);
    store_partial(hn::Add(load_partial(dbias + c, count), bias), dbias + c, count);
    const FloatVector factor = hn::Mul(load_partial(norm.gain + c, count), scale);
    const FloatVector mean_gain = hn::Mul(gain, share), mean_bias = hn::Mul(bias, share);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row * columns + c;
      const FloatVector centered = hn::Sub(load_partial(dy + at, count), mean_bias);
      store_partial(hn::Mul(factor, hn::NegMulAdd(hat_at(at), mean_gain, centered)), dy + at,
                    count);
    }
  });
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(BatchStatistics);
HWY_EXPORT(BatchNorm);
HWY_EXPORT(BatchNormBackward);

void batch_statistics(const float* x, float* mean, float* variance, std::int64_t rows,
                      std::int64_t columns, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(BatchStatistics)(x, mean, variance, rows, columns, begin, end);
}
void batch_norm(const float* x, const BatchNormColumns& norm, float* y, std::int64_t rows,
                std::int64_t columns, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(BatchNorm)(x, norm, y, rows, columns, begin, end);
}
void batch_norm_backward(const float* x, float* dy, const BatchNormColumns& norm, float* dgain,
                         float* dbias, std::int64_t rows, std::int64_t columns, std::int64_t begin,
                         std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(BatchNormBackward)
  (x, dy, norm, dgain, dbias, rows, columns, begin, end);
}
}  // namespace strata::kernels
#endif
