// Default implementations, so that a custom layer needs only weights, shapes and forward.
#include "strata/nn/graph/layer.h"

#include <ATen/ops/zeros.h>

#include <functional>
#include <numeric>
#include <typeinfo>

#include "strata/device/account.h"
#include "strata/nn/graph/measured_bytes.h"
#include "strata/nn/graph/moments.h"

namespace strata {

std::int64_t TensorSpec::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t TensorSpec::bytes() const {
  return numel() * static_cast<std::int64_t>(c10::elementSize(dtype));
}

at::Tensor first_gradient(const WeightSpec& spec, const at::TensorOptions& options) {
  switch (spec.statistic) {
    case Statistic::kNone:
      return at::zeros(spec.shape, options);
    case Statistic::kMean:
      return no_moments(TensorSpec{spec.shape}.numel(), options);
    case Statistic::kVariance:
      break;
  }
  return {};
}

// Belongs to the step: not charged to any rank's budget.
at::Tensor zero_loss(const at::TensorOptions& options) {
  const UnchargedScope uncharged;
  return at::zeros({1}, options.dtype(at::kDouble).requires_grad(std::nullopt));
}

double LossSink::value() const { return sum.item<double>(); }

std::string Layer::signature() const {
  std::string text = typeid(*this).name();
  for (const WeightSpec& weight : weights()) {
    text += " " + weight.name;
    for (const std::int64_t size : weight.shape) text += " " + std::to_string(size);
  }
  return text;
}

LayerBytes Layer::bytes(std::span<const TensorSpec> inputs, Recompute recompute) const {
  return measured_bytes(*this, inputs, recompute);
}

double Layer::forward_flops(std::span<const TensorSpec> inputs) const {
  const TensorSpec& first = inputs[0];
  const bool has_columns = c10::isFloatingType(first.dtype) && !first.shape.empty();
  const std::int64_t rows = first.numel() / (has_columns ? first.shape.back() : 1);
  double products = 0;
  for (const WeightSpec& weight : weights())
    if (weight.shape.size() > 1)
      products += static_cast<double>(TensorSpec{.shape = weight.shape}.numel());
  return 2 * products * static_cast<double>(rows);
}

RepeatedWork Layer::repeated_work(std::span<const TensorSpec>, Recompute) const { return {}; }

LayerWork Layer::work(std::span<const TensorSpec>) const { return {}; }

std::vector<TensorSpec> Layer::cache(std::int64_t, std::int64_t) const { return {}; }

}  // namespace strata
