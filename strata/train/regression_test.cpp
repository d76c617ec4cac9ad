#include "strata/train/regression_test.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>

#include <memory>

#include "strata/device/device.h"

namespace strata {
namespace {

struct Products final : Layer {
  explicit Products(int width) : width(width) {}
  std::vector<WeightSpec> weights() const override {
    return {{.name = "weight", .shape = {1, width}, .decay = true}};
  }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> x) const override {
    return {{{x[0].shape[0], 1}}};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> x) const override {
    return {at::matmul(x[0], weights[0].t())};
  }
  int width;
};

struct HalfSquaredError final : Layer {
  bool is_loss() const override { return true; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override { return {{}}; }
  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> x) const override {
    const at::Tensor sum = (x[0].sum(1) - x[1]).square().sum() / 2;
    context.loss->sum += sum.item<double>();
    return {sum * context.loss_scale};
  }
};

}  // namespace

Sequential regression_model(int width) {
  Sequential model({"points", "labels"});
  model.add("products", std::make_shared<Products>(width), {"points"});
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
