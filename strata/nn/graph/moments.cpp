#include "strata/nn/graph/moments.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace strata {
namespace {

enum Row { kSamples, kMean, kSquares, kRows };

at::Tensor row(const at::Tensor& moments, Row which) { return moments.select(0, which); }

}  // namespace

at::Tensor no_moments(std::int64_t columns, const at::TensorOptions& options) {
  return at::zeros({kRows, columns}, options.dtype(at::kDouble));
}

at::Tensor moments_of(std::int64_t samples, const at::Tensor& mean, const at::Tensor& variance) {
  const at::Tensor means = mean.to(at::kDouble), variances = variance.to(at::kDouble);
  const auto count = static_cast<double>(samples);
  return at::stack({at::full_like(means, count), means, variances * count});
}

void add_moments(const at::Tensor& sum, const at::Tensor& part) {
  const at::Tensor before = row(sum, kSamples), more = row(part, kSamples);
  const at::Tensor share = more / (before + more).clamp_min(1);
  const at::Tensor apart = row(part, kMean) - row(sum, kMean);
  row(sum, kMean).add_(apart * share);
  row(sum, kSquares).add_(row(part, kSquares)).add_(apart * apart * before * share);
  before.add_(more);
}

at::Tensor mean_of(const at::Tensor& moments) { return row(moments, kMean); }

at::Tensor unbiased_variance_of(const at::Tensor& moments) {
  return row(moments, kSquares) / (row(moments, kSamples) - 1);
}

}  // namespace strata
