#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "strata/device/parallel.h"
#include "strata/nn/host/elements.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/kernels/llama_kernels.h"

namespace strata {
namespace {

struct Rows {
  std::int64_t count, columns;
  explicit Rows(const at::Tensor& x) : count(x.numel() / x.size(-1)), columns(x.size(-1)) {}
};

at::Tensor number_a_row(const at::Tensor& x, std::int64_t rows) {
  return at::empty({rows}, x.options().dtype(at::kFloat));
}

}  // namespace

at::Tensor HostPrimitives::layer_norm(const at::Tensor& x, const at::Tensor& gain,
                                      const at::Tensor& bias, float epsilon, at::Tensor& mean,
                                      at::Tensor& rstd) const {
  const Rows rows(x);
  at::Tensor y = at::empty_like(x);
  mean = number_a_row(x, rows.count);
  rstd = number_a_row(x, rows.count);
  const at::Tensor scale = widened(gain), shift = widened(bias);
  const float *scales = scale.const_data_ptr<float>(), *shifts = shift.const_data_ptr<float>();
  float *means = mean.data_ptr<float>(), *rstds = rstd.data_ptr<float>();
  parallel_rows(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * rows.columns;
    kernels::layer_norm(element_of(x), at_element(x, at), scales, shifts, mutable_at_element(y, at),
                        means + begin, rstds + begin, end - begin, rows.columns, epsilon);
  });
  return y;
}

at::Tensor HostPrimitives::layer_norm_again(const at::Tensor& x, const at::Tensor& gain,
                                            const at::Tensor& bias, const at::Tensor& mean,
                                            const at::Tensor& rstd) const {
  const Rows rows(x);
  at::Tensor y = at::empty_like(x);
  const at::Tensor scale = widened(gain), shift = widened(bias);
  const float *scales = scale.const_data_ptr<float>(), *shifts = shift.const_data_ptr<float>();
  const float *means = mean.const_data_ptr<float>(), *rstds = rstd.const_data_ptr<float>();
  parallel_rows(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * rows.columns;
    kernels::layer_norm_again(element_of(x), at_element(x, at), scales, shifts, means + begin,
                              rstds + begin, mutable_at_element(y, at), end - begin, rows.columns);
  });
  return y;
}

void HostPrimitives::layer_norm_gradient(const at::Tensor& x, at::Tensor& dy,
                                         const at::Tensor& gain, const at::Tensor& mean,
                                         const at::Tensor& rstd, const at::Tensor& dgain,
                                         const at::Tensor& dbias) const {
  const Rows rows(x);
  const at::Tensor scale = widened(gain);
  const float* scales = scale.const_data_ptr<float>();
  const float *means = mean.const_data_ptr<float>(), *rstds = rstd.const_data_ptr<float>();
  float *gains = dgain.data_ptr<float>(), *biases = dbias.data_ptr<float>();
  parallel_columns(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::layer_norm_weight_gradient(element_of(x), x.const_data_ptr(), dy.const_data_ptr(),
                                        means, rstds, gains, biases, rows.count, rows.columns,
                                        begin, end);
  });
  // In place: each row is read in full before it is written.
  parallel_rows(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * rows.columns;
    kernels::layer_norm_backward(element_of(x), at_element(x, at), at_element(dy, at), scales,
                                 means + begin, rstds + begin, mutable_at_element(dy, at),
                                 end - begin, rows.columns);
  });
}

at::Tensor HostPrimitives::rms_norm(const at::Tensor& x, const at::Tensor& gain, float epsilon,
                                    at::Tensor& rstd) const {
  const Rows rows(x);
  at::Tensor y = at::empty_like(x);
  rstd = number_a_row(x, rows.count);
  const at::Tensor scale = widened(gain);
  const float* scales = scale.const_data_ptr<float>();
  float* inverse = rstd.data_ptr<float>();
  parallel_rows(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * rows.columns;
    kernels::rms_norm(element_of(x), at_element(x, at), scales, mutable_at_element(y, at),
                      inverse + begin, end - begin, rows.columns, epsilon);
  });
  return y;
}

at::Tensor HostPrimitives::rms_norm_again(const at::Tensor& x, const at::Tensor& gain,
                                          const at::Tensor& rstd) const {
  const Rows rows(x);
  at::Tensor y = at::empty_like(x);
  const at::Tensor scale = widened(gain);
  const float *scales = scale.const_data_ptr<float>(), *inverse = rstd.const_data_ptr<float>();
  parallel_rows(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * rows.columns;
    kernels::rms_norm_again(element_of(x), at_element(x, at), scales, inverse + begin,
                            mutable_at_element(y, at), end - begin, rows.columns);
  });
  return y;
}

void HostPrimitives::rms_norm_gradient(const at::Tensor& x, at::Tensor& dy, const at::Tensor& gain,
                                       const at::Tensor& rstd, const at::Tensor& dgain) const {
  const Rows rows(x);
  const at::Tensor scale = widened(gain);
  const float *scales = scale.const_data_ptr<float>(), *inverse = rstd.const_data_ptr<float>();
  float* sums = dgain.data_ptr<float>();
  parallel_columns(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::rms_norm_weight_gradient(element_of(x), x.const_data_ptr(), dy.const_data_ptr(),
                                      inverse, sums, rows.count, rows.columns, begin, end);
  });
  // In place: each row is read in full before it is written.
  parallel_rows(rows.count, rows.columns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * rows.columns;
    kernels::rms_norm_backward(element_of(x), at_element(x, at), at_element(dy, at), scales,
                               inverse + begin, mutable_at_element(dy, at), end - begin,
                               rows.columns);
  });
}

}  // namespace strata
