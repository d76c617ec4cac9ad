// Statistics and the gradient at the input are computed by rows, gradients of weights by columns:
// one thread computes each number, in row order, for any number of threads.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "strata/device/parallel.h"
#include "strata/nn/host/elements.h"
#include "strata/nn/host/host_primitives.h"

namespace strata {
namespace {

struct Rows {
  std::int64_t count, columns;
  explicit Rows(const at::Tensor& x) : count(x.numel() / x.size(-1)), columns(x.size(-1)) {}
};

at::Tensor number_a_row(const at::Tensor& x, std::int64_t rows) {
  return at::empty({rows}, x.options().dtype(at::kFloat));
}

// Null for weights and statistics that an RMSNorm doesn't have.
const float* floats(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}

at::Tensor widened_if_defined(const at::Tensor& x) { return x.defined() ? widened(x) : x; }

}  // namespace

at::Tensor HostNormPrimitives::norm(const at::Tensor& x, const Norm& norm,
                                    NormStatistics& statistics) const {
  const Rows rows(x);
  const at::Tensor gains = widened(norm.gain), biases = widened_if_defined(norm.bias);
  const float *gain = floats(gains), *bias = floats(biases);
  at::Tensor y = at::empty_like(x);
  if (bias) statistics.mean = number_a_row(x, rows.count);
  statistics.rstd = number_a_row(x, rows.count);
  float* mean = bias ? statistics.mean.data_ptr<float>() : nullptr;
  float* rstd = statistics.rstd.data_ptr<float>();
  const auto epsilon = static_cast<float>(norm.epsilon);
  parallel_rows(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    const void* from = at_element(x, begin * rows.columns);
    void* to = mutable_at_element(y, begin * rows.columns);
    if (bias) {
      kernels::layer_norm(element_of(x), from, gain, bias, to, mean + begin, rstd + begin,
                          end - begin, rows.columns, epsilon);
    } else {
      kernels::rms_norm(element_of(x), from, gain, to, rstd + begin, end - begin, rows.columns,
                        epsilon);
    }
  });
  return y;
}

at::Tensor HostNormPrimitives::norm_again(const at::Tensor& x, const Norm& norm,
                                          const NormStatistics& statistics) const {
  const Rows rows(x);
  const at::Tensor gains = widened(norm.gain), biases = widened_if_defined(norm.bias);
  const float *gain = floats(gains), *bias = floats(biases);
  at::Tensor y = at::empty_like(x);
  const float *mean = floats(statistics.mean), *rstd = floats(statistics.rstd);
  parallel_rows(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    const void* from = at_element(x, begin * rows.columns);
    void* to = mutable_at_element(y, begin * rows.columns);
    if (bias) {
      kernels::layer_norm_again(element_of(x), from, gain, bias, mean + begin, rstd + begin, to,
                                end - begin, rows.columns);
    } else {
      kernels::rms_norm_again(element_of(x), from, gain, rstd + begin, to, end - begin,
                              rows.columns);
    }
  });
  return y;
}

void HostNormPrimitives::norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                                       const NormStatistics& statistics,
                                       const NormSums& sums) const {
  const Rows rows(x);
  const at::Tensor gains = widened(norm.gain);
  const float* gain = floats(gains);
  const float *mean = floats(statistics.mean), *rstd = floats(statistics.rstd);
  float* gain_sums = sums.gain.data_ptr<float>();
  float* bias_sums = mean ? sums.bias.data_ptr<float>() : nullptr;
  parallel_columns(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    if (mean) {
      kernels::layer_norm_weight_gradient(element_of(x), x.const_data_ptr(), dy.const_data_ptr(),
                                          mean, rstd, gain_sums, bias_sums, rows.count,
                                          rows.columns, begin, end);
    } else {
      kernels::rms_norm_weight_gradient(element_of(x), x.const_data_ptr(), dy.const_data_ptr(),
                                        rstd, gain_sums, rows.count, rows.columns, begin, end);
    }
  });
  // In place: each row is read completely before it is written.
  parallel_rows(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * rows.columns;
    if (mean) {
      kernels::layer_norm_backward(element_of(x), at_element(x, at), at_element(dy, at), gain,
                                   mean + begin, rstd + begin, mutable_at_element(dy, at),
                                   end - begin, rows.columns);
    } else {
      kernels::rms_norm_backward(element_of(x), at_element(x, at), at_element(dy, at), gain,
                                 rstd + begin, mutable_at_element(dy, at), end - begin,
                                 rows.columns);
    }
  });
}

BatchStatistics HostNormPrimitives::batch_statistics(const at::Tensor& x) const {
  const Rows rows(x);
  BatchStatistics statistics{at::empty({rows.columns}, x.options()),
                             at::empty({rows.columns}, x.options())};
  float *mean = statistics.mean.data_ptr<float>(),
        *variance = statistics.variance.data_ptr<float>();
  parallel_columns(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::batch_statistics(x.const_data_ptr<float>(), mean, variance, rows.count, rows.columns,
                              begin, end);
  });
  return statistics;
}

namespace {

kernels::BatchNormColumns columns_of(const Norm& norm, const BatchStatistics& statistics) {
  return {floats(norm.gain), floats(norm.bias), floats(statistics.mean),
          floats(statistics.variance), static_cast<float>(norm.epsilon)};
}

}  // namespace

at::Tensor HostNormPrimitives::batch_norm(const at::Tensor& x, const Norm& norm,
                                          const BatchStatistics& statistics) const {
  const Rows rows(x);
  at::Tensor y = at::empty_like(x);
  float* to = y.data_ptr<float>();
  parallel_columns(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::batch_norm(x.const_data_ptr<float>(), columns_of(norm, statistics), to, rows.count,
                        rows.columns, begin, end);
  });
  return y;
}

void HostNormPrimitives::batch_norm_gradient(const at::Tensor& x, const at::Tensor& dy,
                                             const Norm& norm, const BatchStatistics& statistics,
                                             const NormSums& sums) const {
  const Rows rows(x);
  float *gain = sums.gain.data_ptr<float>(), *bias = sums.bias.data_ptr<float>();
  float* gradient = dy.data_ptr<float>();
  parallel_columns(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::batch_norm_backward(x.const_data_ptr<float>(), gradient, columns_of(norm, statistics),
                                 gain, bias, rows.count, rows.columns, begin, end);
  });
}

}  // namespace strata
