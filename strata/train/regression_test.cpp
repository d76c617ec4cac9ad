#include "strata/train/regression_test.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mv.h>

#include <memory>
#include <utility>

#include "strata/device/device.h"

namespace strata {
namespace {

struct Products final : Layer {
  explicit Products(std::vector<WeightSpec> specs) : specs(std::move(specs)) {}
  std::vector<WeightSpec> weights() const override { return specs; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> x) const override {
    return {{{x[0].shape[0]}}};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> x) const override {
    at::Tensor sum;
    std::int64_t begin = 0;
    for (const at::Tensor& weight : weights) {
      const at::Tensor product = at::mv(x[0].narrow(1, begin, weight.numel()), weight.flatten());
      sum = sum.defined() ? sum + product : product;
      begin += weight.numel();
    }
    return {sum};
  }
  std::vector<WeightSpec> specs;
};

struct HalfSquaredError final : Layer {
  bool is_loss() const override { return true; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override { return {{}}; }
  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> x) const override {
    const at::Tensor sum = (x[0] - x[1]).square().sum() / 2;
    context.loss->sum += sum.item<double>();
    return {sum * context.loss_scale};
  }
};

}  // namespace

Sequential regression_model(const std::vector<WeightSpec>& weights) {
  Sequential model({"points", "labels"});
  model.add("products", std::make_shared<Products>(weights), {"points"});
  model.add("loss", std::make_shared<HalfSquaredError>(), {"x", "labels"}, {"loss"});
  return model;
}

MiniBatch regression_batch(const Regression& regression, int step) {
  const int width = regression.width, samples = regression.samples;
  const at::Tensor x = at::empty({samples, width}, host_options(at::kFloat));
  const at::Tensor y = at::empty({samples}, host_options(at::kFloat));
  for (int i = 0; i < samples; ++i) {
    for (int k = 0; k < width; ++k)
      x.data_ptr<float>()[i * width + k] = static_cast<float>(regression.input(step, i, k));
    y.data_ptr<float>()[i] = static_cast<float>(regression.label(step, i));
  }
  return {.inputs = {x, y}, .samples = samples, .valid_tokens = samples};
}

}  // namespace strata
