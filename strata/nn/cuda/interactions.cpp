// Kernels read the vectors of samples from the batch in place.
#include <ATen/ops/empty.h>

#include "strata/nn/cuda/arguments.h"
#include "strata/nn/cuda/cuda_primitives.h"

namespace strata {
namespace {

cuda::FeatureBatch features_of(const at::Tensor& first, const at::Tensor& rest,
                               std::int64_t width) {
  return {.first = kernel_input<float>(first),
          .rest = kernel_input<float>(rest),
          .samples = rest.size(0),
          .count = rest.size(1) / width + (first.defined() ? 1 : 0),
          .width = width};
}

}  // namespace

at::Tensor CudaInteractionPrimitives::pairwise_dots(const at::Tensor& first, const at::Tensor& rest,
                                                    std::int64_t width) const {
  const cuda::FeatureBatch features = features_of(first, rest, width);
  const std::int64_t pairs = features.count * (features.count - 1) / 2;
  at::Tensor y = empty_on_device_of(rest, {features.samples, (features.first ? width : 0) + pairs},
                                    at::kFloat);
  cuda::pairwise_dots(features, kernel_output<float>(y), stream(rest));
  return y;
}

void CudaInteractionPrimitives::pairwise_dots_gradient(const at::Tensor& first,
                                                       const at::Tensor& rest, std::int64_t width,
                                                       const at::Tensor& dy,
                                                       const at::Tensor& dfirst,
                                                       const at::Tensor& drest) const {
  cuda::pairwise_dots_backward(features_of(first, rest, width), kernel_input<float>(dy),
                               kernel_output<float>(dfirst), kernel_output<float>(drest),
                               stream(rest));
}

void CudaLossPrimitives::add_logistic_loss(const at::Tensor& loss, const at::Tensor& logits,
                                           const at::Tensor& labels, double scale,
                                           const at::Tensor& gradient,
                                           const StepScalars* scalars) const {
  const at::Tensor losses = empty_on_device_of(logits, {logits.numel()}, at::kDouble);
  cuda::logistic_loss(kernel_input<float>(logits), kernel_input<float>(labels),
                      kernel_output<double>(losses), scale, kernel_output<float>(gradient),
                      logits.numel(), scalars, stream(logits));
  cuda::add_sum(kernel_input<double>(losses), kernel_output<double>(loss), losses.numel(),
                stream(logits));
}

}  // namespace strata
