// Samples are independent; one thread sums a loss, in their order.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/device/parallel.h"
#include "strata/nn/host/elements.h"
#include "strata/nn/host/host_primitives.h"

namespace strata {
namespace {

// The vectors of a batch's samples.
struct SampleVectors {
  const float *first, *rest;
  std::int64_t rest_width, width, count;

  SampleVectors(const at::Tensor& first_vector, const at::Tensor& others, std::int64_t vector_width)
      : first(first_vector.defined() ? first_vector.const_data_ptr<float>() : nullptr),
        rest(others.const_data_ptr<float>()),
        rest_width(others.size(1)),
        width(vector_width),
        count(rest_width / width + (first ? 1 : 0)) {}

  std::int64_t pairs() const { return count * (count - 1) / 2; }
  std::int64_t first_width() const { return first ? width : 0; }
  kernels::FeatureVectors of(std::int64_t sample) const {
    return {first ? first + sample * width : nullptr, rest + sample * rest_width, count, width};
  }
};

}  // namespace

at::Tensor HostInteractionPrimitives::pairwise_dots(const at::Tensor& first, const at::Tensor& rest,
                                                    std::int64_t width) const {
  const SampleVectors vectors(first, rest, width);
  const std::int64_t out = vectors.first_width() + vectors.pairs();
  at::Tensor y = at::empty({rest.size(0), out}, rest.options());
  float* to = y.data_ptr<float>();
  parallel_rows(rest.size(0), out * width, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scratch(kernels::pairwise_scratch(vectors.of(begin)));
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const kernels::FeatureVectors x = vectors.of(sample);
      if (x.first) std::copy_n(x.first, width, to + sample * out);
      kernels::pairwise_dots(x, scratch.data(), to + sample * out + vectors.first_width());
    }
  });
  return y;
}

void HostInteractionPrimitives::pairwise_dots_gradient(const at::Tensor& first,
                                                       const at::Tensor& rest, std::int64_t width,
                                                       const at::Tensor& dy,
                                                       const at::Tensor& dfirst,
                                                       const at::Tensor& drest) const {
  const SampleVectors vectors(first, rest, width);
  const std::int64_t out = dy.size(1), rest_width = vectors.rest_width;
  const float* gradients = dy.const_data_ptr<float>();
  float* to_first = dfirst.defined() ? dfirst.data_ptr<float>() : nullptr;
  float* to_rest = drest.data_ptr<float>();
  parallel_rows(rest.size(0), out * width, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scratch(kernels::pairwise_scratch(vectors.of(begin)));
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const float* gradient = gradients + sample * out;
      float* at_first = to_first ? to_first + sample * width : nullptr;
      if (at_first) std::copy_n(gradient, width, at_first);
      kernels::pairwise_dots_backward(vectors.of(sample), gradient + vectors.first_width(),
                                      scratch.data(), at_first, to_rest + sample * rest_width);
    }
  });
}

void HostLossPrimitives::add_logistic_loss(const at::Tensor& loss, const at::Tensor& logits,
                                           const at::Tensor& labels, double scale,
                                           const at::Tensor& gradient,
                                           const StepScalars* scalars) const {
  STRATA_CHECK(!scalars, "nn.add_logistic_loss");
  const float *z = logits.const_data_ptr<float>(), *y = labels.const_data_ptr<float>();
  double* sum = loss.data_ptr<double>();
  float* dz = gradient.defined() ? gradient.data_ptr<float>() : nullptr;
  for (std::int64_t i = 0; i < logits.numel(); ++i) {
    const bool counts = !(y[i] < 0);
    const double logit = z[i], label = y[i], decay = std::exp(-std::abs(logit));
    if (counts) *sum += std::max(logit, 0.0) - logit * label + std::log1p(decay);
    if (!dz) continue;
    const double probability = (logit >= 0 ? 1 : decay) / (1 + decay);
    dz[i] = counts ? static_cast<float>(scale * (probability - label)) : 0.0f;
  }
}

}  // namespace strata
