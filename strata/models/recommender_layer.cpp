#include "strata/models/recommender_layer.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "strata/nn/ops/batch_norm.h"
#include "strata/nn/ops/interaction.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/logistic_loss.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

constexpr std::int64_t kFp32Bytes = 4;

class HiddenLayer final : public Layer {
 public:
  HiddenLayer(HiddenUnit unit, double dropout) : unit_(unit), dropout_(dropout) {}

  std::string signature() const override {
    return unit_.signature() + (dropout_ > 0 ? " dropout" : "");
  }
  std::vector<WeightSpec> weights() const override { return unit_.weights(); }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {{.shape = {inputs[0].shape[0], unit_.out}}};
  }
  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    return {dropout(unit_.forward(context, weights, inputs[0]), {dropout_, 0}, context)};
  }

  // Dropout makes a tensor in addition to its input, and saves no tensor. In backward each operator
  // after the product makes a gradient and frees what it saved, before the gradient of the layer's
  // input exists.
  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute) const override {
    const std::int64_t samples = inputs[0].shape[0], whole = samples * unit_.out * kFp32Bytes;
    const int gradients = (dropout_ > 0 ? 1 : 0) + (unit_.saved_bytes(1) > 0 ? 1 : 0);
    return {.saved = unit_.saved_bytes(samples),
            .forward_transient = dropout_ > 0 ? whole : 0,
            .backward_transient = std::max<std::int64_t>(0, gradients * whole - inputs[0].bytes()),
            .kept = whole,
            .weight_transient = 0};
  }

 private:
  HiddenUnit unit_;
  double dropout_;
};

// [B, in] -> [B]; adds a second input [B, 1], if there is one.
class ScoreHead : public Layer {
 public:
  ScoreHead(std::int64_t in, bool wide) : in_(in), wide_(wide) {}

  std::vector<WeightSpec> weights() const override {
    return {map_weight("weight", 1, in_), map_bias("bias", 1, in_)};
  }

 protected:
  std::string kind(const std::string& output) const {
    return "recommender." + output + (wide_ ? " wide " : " ") + std::to_string(in_);
  }
  at::Tensor scores(std::span<const at::Tensor> weights, std::span<const at::Tensor> inputs) const {
    at::Tensor scores = linear(inputs[0], weights[0], weights[1]);
    if (wide_) scores = residual_add(scores, inputs[1]);
    return scores.view({-1});
  }

 private:
  std::int64_t in_;
  bool wide_;
};

class RecommenderLoss final : public ScoreHead {
 public:
  using ScoreHead::ScoreHead;
  std::string signature() const override { return kind("loss"); }
  bool is_loss() const override { return true; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override {
    return {{.shape = {}}};
  }
  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute) const override {
    const std::int64_t scores = inputs[0].shape[0] * kFp32Bytes;
    return {.saved = scores, .kept = scores};
  }
  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    return {logistic_loss(scores(weights, inputs), inputs.back(), context)};
  }
};

class RecommenderLogits final : public ScoreHead {
 public:
  using ScoreHead::ScoreHead;
  std::string signature() const override { return kind("logits"); }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {{.shape = {inputs[0].shape[0]}}};
  }
  LayerBytes bytes(std::span<const TensorSpec>, Recompute) const override { return {}; }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    return {scores(weights, inputs)};
  }
};

class SideBySide final : public Layer {
 public:
  std::string signature() const override { return "recommender.side_by_side"; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    std::int64_t width = 0;
    for (const TensorSpec& input : inputs) width += input.shape[1];
    return {{.shape = {inputs[0].shape[0], width}}};
  }
  LayerBytes bytes(std::span<const TensorSpec>, Recompute) const override { return {}; }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    // A single input is copied, because a value needs a graph.
    return {inputs.size() == 1 ? inputs[0].clone() : side_by_side(inputs[0], inputs[1])};
  }
  bool recomputable() const override { return false; }
};

Init uniform_over(std::int64_t in) {
  return {Init::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in))};
}

}  // namespace

WeightSpec map_weight(std::string name, std::int64_t out, std::int64_t in) {
  return {.name = std::move(name), .shape = {out, in}, .init = uniform_over(in), .decay = true};
}

WeightSpec map_bias(std::string name, std::int64_t out, std::int64_t in) {
  return {.name = std::move(name), .shape = {out}, .init = uniform_over(in)};
}

std::vector<WeightSpec> HiddenUnit::weights(const std::string& prefix) const {
  std::vector<WeightSpec> specs = {map_weight(prefix + "weight", out, in),
                                   map_bias(prefix + "bias", out, in)};
  specs[0].hidden_matrix = true;
  if (batch_norm)
    for (WeightSpec& spec : batch_norm_weights(prefix + "norm.", out))
      specs.push_back(std::move(spec));
  return specs;
}

at::Tensor HiddenUnit::forward(const ForwardContext& context, std::span<const at::Tensor> weights,
                               const at::Tensor& x) const {
  at::Tensor y = linear(x, weights[0], weights[1]);
  if (batch_norm)
    y = strata::batch_norm(y, {weights[2], weights[3], weights[4], weights[5]}, context);
  return activation == HiddenActivation::kRelu ? activate(Activation::kRelu, y) : y;
}

std::string HiddenUnit::signature() const {
  return "hidden " + std::to_string(in) + " " + std::to_string(out) + " " + name_of(activation) +
         (batch_norm ? " norm" : "");
}

std::int64_t HiddenUnit::saved_bytes(std::int64_t samples) const {
  const int kept = (batch_norm ? 1 : 0) + (activation == HiddenActivation::kRelu ? 1 : 0);
  return (kept * samples + (batch_norm ? 2 : 0)) * out * kFp32Bytes;
}

std::int64_t add_hidden(Sequential& model, const RecommenderSetup& setup, const std::string& prefix,
                        const std::vector<std::int64_t>& widths, bool batch_norm, std::int64_t in,
                        std::string input) {
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const HiddenUnit unit{in, widths[i], batch_norm, setup.options.activation};
    model.add(prefix + std::to_string(i),
              std::make_shared<HiddenLayer>(unit, setup.options.dropout), {input}, {"x"});
    in = widths[i];
    input = "x";
  }
  return in;
}

std::int64_t add_top(Sequential& model, const RecommenderSetup& setup, std::int64_t in,
                     const std::string& input) {
  return add_hidden(model, setup, "top", setup.options.top,
                    setup.options.batch_norm == BatchNormPlace::kAll, in, input);
}

void add_head(Sequential& model, const RecommenderSetup& setup, std::int64_t in, bool wide) {
  std::vector<std::string> inputs = {"x"};
  if (wide) inputs.push_back("wide");
  if (setup.output == RecommenderOutput::kLogits) {
    model.add("head", std::make_shared<RecommenderLogits>(in, wide), inputs, {"logits"});
    return;
  }
  inputs.push_back("labels");
  model.add("head", std::make_shared<RecommenderLoss>(in, wide), inputs, {"loss"});
}

void add_side_by_side(Sequential& model, const std::string& name,
                      const std::vector<std::string>& inputs, const std::string& output) {
  model.add(name, std::make_shared<SideBySide>(), inputs, {output});
}

}  // namespace strata
