// Gradients of weights are summed before dx overwrites dy.
#include <ATen/ops/empty_like.h>

#include "strata/nn/cuda/arguments.h"
#include "strata/nn/cuda/cuda_primitives.h"

namespace strata {
namespace {

cuda::NormWeights weights_of(const at::Tensor& x, const Norm& norm) {
  STRATA_CHECK(norm.gain.scalar_type() == x.scalar_type(), "nn.cuda_norm");
  STRATA_CHECK(!norm.bias.defined() || norm.bias.scalar_type() == x.scalar_type(), "nn.cuda_norm");
  return {kernel_input(norm.gain), kernel_input(norm.bias)};
}

// The statistics show which kind of norm it was; its weights must agree.
cuda::NormWeights weights_of(const at::Tensor& x, const Norm& norm,
                             const NormStatistics& statistics) {
  cuda::NormWeights weights = weights_of(x, norm);
  STRATA_CHECK(!statistics.mean.defined() || weights.bias, "nn.cuda_norm");
  return weights;
}

kernels::BatchNormColumns batch_columns(const Norm& norm, const BatchStatistics& statistics) {
  return {kernel_input<float>(norm.gain), kernel_input<float>(norm.bias),
          kernel_input<float>(statistics.mean), kernel_input<float>(statistics.variance),
          static_cast<float>(norm.epsilon)};
}

}  // namespace

at::Tensor CudaNormPrimitives::norm(const at::Tensor& x, const Norm& norm,
                                    NormStatistics& statistics) const {
  const RowShape rows(x);
  const cuda::NormWeights weights = weights_of(x, norm);
  at::Tensor y = at::empty_like(x);
  if (weights.bias) statistics.mean = empty_on_device_of(x, {rows.count}, at::kFloat);
  statistics.rstd = empty_on_device_of(x, {rows.count}, at::kFloat);
  cuda::norm(element_of(x), kernel_input(x), weights, kernel_output(y),
             kernel_output<float>(statistics.mean), kernel_output<float>(statistics.rstd),
             rows.count, rows.columns, static_cast<float>(norm.epsilon), stream(x));
  return y;
}

at::Tensor CudaNormPrimitives::norm_again(const at::Tensor& x, const Norm& norm,
                                          const NormStatistics& statistics) const {
  const RowShape rows(x);
  at::Tensor y = at::empty_like(x);
  cuda::norm_again(element_of(x), kernel_input(x), weights_of(x, norm, statistics),
                   kernel_input<float>(statistics.mean), kernel_input<float>(statistics.rstd),
                   kernel_output(y), rows.count, rows.columns, stream(x));
  return y;
}

void CudaNormPrimitives::norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                                       const NormStatistics& statistics,
                                       const NormSums& sums) const {
  const RowShape rows(x);
  const kernels::Element element = element_of(x);
  const cuda::NormWeights weights = weights_of(x, norm, statistics);
  const float *mean = kernel_input<float>(statistics.mean),
              *rstd = kernel_input<float>(statistics.rstd);
  const at::Tensor workspace = column_sums_for(x, rows);
  cuda::norm_weight_gradient(element, kernel_input(x), kernel_input(dy), mean, rstd,
                             kernel_output<float>(sums.gain),
                             mean ? kernel_output<float>(sums.bias) : nullptr, rows.count,
                             rows.columns, kernel_output<float>(workspace), stream(x));
  cuda::norm_backward(element, kernel_input(x), kernel_input(dy), weights, mean, rstd,
                      kernel_output(dy), rows.count, rows.columns, stream(x));
}

BatchStatistics CudaNormPrimitives::batch_statistics(const at::Tensor& x) const {
  const RowShape rows(x);
  const BatchStatistics statistics{empty_on_device_of(x, {rows.columns}, at::kFloat),
                                   empty_on_device_of(x, {rows.columns}, at::kFloat)};
  const at::Tensor workspace = column_sums_for(x, rows);
  cuda::batch_statistics(kernel_input<float>(x), kernel_output<float>(statistics.mean),
                         kernel_output<float>(statistics.variance), rows.count, rows.columns,
                         kernel_output<float>(workspace), stream(x));
  return statistics;
}

at::Tensor CudaNormPrimitives::batch_norm(const at::Tensor& x, const Norm& norm,
                                          const BatchStatistics& statistics) const {
  const RowShape rows(x);
  at::Tensor y = at::empty_like(x);
  cuda::batch_norm(kernel_input<float>(x), batch_columns(norm, statistics), kernel_output<float>(y),
                   rows.count, rows.columns, stream(x));
  return y;
}

void CudaNormPrimitives::batch_norm_gradient(const at::Tensor& x, const at::Tensor& dy,
                                             const Norm& norm, const BatchStatistics& statistics,
                                             const NormSums& sums) const {
  const RowShape rows(x);
  const at::Tensor workspace = column_sums_for(x, rows);
  cuda::batch_norm_backward(kernel_input<float>(x), kernel_output<float>(dy),
                            batch_columns(norm, statistics), kernel_output<float>(sums.gain),
                            kernel_output<float>(sums.bias), rows.count, rows.columns,
                            kernel_output<float>(workspace), stream(x));
}

}  // namespace strata
