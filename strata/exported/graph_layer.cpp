// A value is let go after its last use, as in eager mode.
#include "strata/exported/graph_layer.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/var_mean.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/exported/attention_dropout.h"
#include "strata/exported/operator_call.h"
#include "strata/nn/graph/moments.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

constexpr ErrorSource kLayerErrors{"exported.read"};

// The backward adds the micro-batch's moments, because it runs once.
struct AddMoments : torch::autograd::Function<AddMoments> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& y,
                            const at::Tensor& running_mean, const at::Tensor& mean,
                            const at::Tensor& variance, std::int64_t samples) {
    context->save_for_backward({running_mean, mean, variance});
    context->saved_data["samples"] = samples;
    return y.view_as(y);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    add_moments(saved[0].grad(),
                moments_of(context->saved_data.at("samples").toInt(), saved[1], saved[2]));
    return {gradients[0], {}, {}, {}, {}};
  }
};

struct DropoutStep {
  int x, y;
  Dropout dropout;
};

struct AttentionStep {
  int q, k, v, mask, y;  // mask: -1: none
  bool causal, shares_keys;
  std::optional<double> scale;
  Dropout dropout;
};

struct BatchNormStep {
  int x, y, gain, bias, mean, variance;  // gain, bias: -1: none
  double momentum, epsilon;
};

template <typename T>
T constant(const GraphNode& node, const std::string& name) {
  const GraphArgument* found = find_argument(node, name);
  if (found) {
    if (const auto* value = std::get_if<T>(found)) return *value;
    if constexpr (std::is_same_v<T, double>)
      if (const auto* number = std::get_if<BatchNumber>(found))
        return static_cast<double>(number->constant);
  }
  throw kLayerErrors.user(node.line, node.op + " needs a fixed " + name, "a number", "none",
                          "give it a number");
}

class GraphLayer final : public Layer {
 public:
  GraphLayer(const ExportedProgram& program, const GraphPiece& piece,
             const std::map<std::string, std::string>& ties) {
    for (const std::string& input : piece.inputs) {
      const GraphShape& shape = program.shape(input);
      if (samples_input_ < 0 && !shape.sizes.empty() && shape.sizes[0] == BatchNumber{.samples = 1})
        samples_input_ = static_cast<int>(inputs_.size());
      inputs_.push_back(slot(input));
    }
    find_statistics(piece);
    for (const GraphInput& parameter : piece.parameters)
      add_parameter(program, piece, parameter, ties);
    for (const GraphNode& node : piece.nodes) add_statistics(program, piece, node);
    for (const GraphInput& buffer : piece.buffers)
      if (!statistics_.contains(buffer.name))
        constants_.emplace_back(slot(buffer.name), program.tensor(buffer.target));
    for (const GraphNode& node : piece.nodes) add_step(node);
    for (const std::string& output : piece.outputs) outputs_.push_back(slot(output));
    find_last_uses();
  }

  std::vector<WeightSpec> weights() const override { return specs_; }
  std::string signature() const override { return signature_; }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    const at::NoGradGuard no_grad;
    const at::Device meta(at::kMeta);
    const at::TensorOptions options = at::TensorOptions().device(meta);
    std::vector<at::Tensor> weights, values;
    for (const WeightSpec& spec : specs_)
      weights.push_back(at::empty(spec.shape, options.dtype(at::kFloat)));
    for (const TensorSpec& input : inputs)
      values.push_back(at::empty(input.shape, options.dtype(input.dtype)));
    std::vector<TensorSpec> specs;
    for (const at::Tensor& output : run({}, weights, values, meta))
      specs.push_back({output.sizes().vec(), output.scalar_type()});
    return specs;
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Device device = !inputs.empty()    ? inputs[0].device()
                              : !weights.empty() ? weights[0].device()
                                                 : at::Device(at::kCPU);
    return run(context, weights, inputs, device);
  }

 private:
  int slot(const std::string& value) {
    return slots_.emplace(value, static_cast<int>(slots_.size())).first->second;
  }

  void add_parameter(const ExportedProgram& program, const GraphPiece& piece,
                     const GraphInput& parameter, const std::map<std::string, std::string>& ties) {
    std::vector<std::int64_t> shape;
    for (const BatchNumber& size : program.shape(parameter.name).sizes)
      shape.push_back(size.constant);
    const auto tie = ties.find(parameter.target);
    const bool matrix = shape.size() >= 2;
    specs_.push_back({.name = weight_in_piece(piece, parameter.target),
                      .shape = std::move(shape),
                      .decay = matrix,
                      .tie = tie == ties.end() ? "" : tie->second});
    weights_.push_back(slot(parameter.name));
  }

  static std::string value_of(const GraphNode& node, const std::string& name) {
    const GraphArgument* found = find_argument(node, name);
    const auto* tensor = found ? std::get_if<GraphTensor>(found) : nullptr;
    return tensor ? tensor->name : "";
  }

  // Batch norm that normalises by the micro-batch. One that is frozen is an operator like others,
  // whose statistics are constants.
  static bool moves_statistics(const GraphNode& node) {
    return node.op == "aten::batch_norm" && constant<bool>(node, "training");
  }

  void find_statistics(const GraphPiece& piece) {
    for (const GraphNode& node : piece.nodes) {
      if (!moves_statistics(node)) continue;
      const std::string mean = value_of(node, "running_mean");
      const std::string variance = value_of(node, "running_var");
      if (mean.empty() || variance.empty())
        throw kLayerErrors.user(node.line, "batch norm without running statistics",
                                "track_running_stats=True", "False",
                                "let batch norm track its statistics");
      for (const std::string& name : {mean, variance})
        if (!statistics_.insert(name).second)
          throw kLayerErrors.user(node.line, "a batch norm is used twice", "one use of each", "two",
                                  "make two layers");
    }
  }

  // A variance follows the mean of its columns.
  void add_statistics(const ExportedProgram& program, const GraphPiece& piece,
                      const GraphNode& node) {
    if (!moves_statistics(node)) return;
    const double momentum = constant<double>(node, "momentum");
    for (const auto& [argument, statistic] : {std::pair("running_mean", Statistic::kMean),
                                              std::pair("running_var", Statistic::kVariance)}) {
      const std::string name = value_of(node, argument);
      const auto buffer = std::ranges::find(piece.buffers, name, &GraphInput::name);
      if (buffer == piece.buffers.end())
        throw kLayerErrors.user(node.line, "the statistics of a batch norm are no buffers",
                                "buffers", name, "let batch norm track its statistics");
      specs_.push_back(
          {.name = weight_in_piece(piece, buffer->target),
           .shape = {program.shape(name).sizes.at(0).constant},
           .init = {statistic == Statistic::kMean ? Init::Kind::kZeros : Init::Kind::kOnes},
           .statistic = statistic,
           .momentum = momentum});
      weights_.push_back(slot(name));
    }
  }

  void add_step(const GraphNode& node) {
    signature_ += node.op + (node.overload.empty() ? "" : "." + node.overload);
    if (node.op == "aten::dropout") {
      const double probability = constant<bool>(node, "train") ? constant<double>(node, "p") : 0;
      const DropoutStep step{slot(value_of(node, "input")),
                             slot(node.outputs.at(0)),
                             {.probability = probability, .site = sites_++}};
      signature_ += ' ' + std::to_string(step.x) + ' ' + std::to_string(probability) + '\n';
      steps_.push_back({.run = step, .reads = {step.x}, .writes = {step.y}, .line = node.line});
      return;
    }
    if (moves_statistics(node)) {
      const auto place = [&](const char* name) {
        const std::string value = value_of(node, name);
        return value.empty() ? -1 : slot(value);
      };
      const BatchNormStep step{.x = place("input"),
                               .y = slot(node.outputs.at(0)),
                               .gain = place("weight"),
                               .bias = place("bias"),
                               .mean = place("running_mean"),
                               .variance = place("running_var"),
                               .momentum = constant<double>(node, "momentum"),
                               .epsilon = constant<double>(node, "eps")};
      signature_ += ' ' + std::to_string(step.x) + '\n';
      steps_.push_back({.run = step, .reads = {step.x}, .writes = {step.y}, .line = node.line});
      return;
    }
    if (node.op == "aten::scaled_dot_product_attention" && dropout_of(node) > 0)
      return add_attention(node);
    OperatorCall call(node, [&](const std::string& value) { return slot(value); });
    for (const int read : call.reads()) signature_ += ' ' + std::to_string(read);
    for (const auto& [name, argument] : node.arguments) signature_ += text_of(argument);
    signature_ += '\n';
    const std::vector<int> reads = call.reads(), writes = call.writes();
    steps_.push_back({.run = std::move(call), .reads = reads, .writes = writes, .line = node.line});
  }

  static double dropout_of(const GraphNode& node) {
    return find_argument(node, "dropout_p") ? constant<double>(node, "dropout_p") : 0;
  }

  void add_attention(const GraphNode& node) {
    const auto flag = [&](const char* name) {
      return find_argument(node, name) && constant<bool>(node, name);
    };
    const std::string mask = value_of(node, "attn_mask");
    const GraphArgument* scale = find_argument(node, "scale");
    AttentionStep step{.q = slot(value_of(node, "query")),
                       .k = slot(value_of(node, "key")),
                       .v = slot(value_of(node, "value")),
                       .mask = mask.empty() ? -1 : slot(mask),
                       .y = slot(node.outputs.at(0)),
                       .causal = flag("is_causal"),
                       .shares_keys = flag("enable_gqa"),
                       .scale = {},
                       .dropout = {.probability = dropout_of(node), .site = sites_++}};
    if (scale && !std::holds_alternative<GraphNone>(*scale))
      step.scale = constant<double>(node, "scale");
    signature_ +=
        ' ' + std::to_string(step.q) + ' ' + std::to_string(step.dropout.probability) + '\n';
    steps_.push_back({.run = step,
                      .reads = {step.q, step.k, step.v, step.mask},
                      .writes = {step.y},
                      .line = node.line});
  }

  static std::string text_of(const GraphArgument& argument) {
    if (const auto* number = std::get_if<BatchNumber>(&argument))
      return " " + std::to_string(number->samples) + "n+" + std::to_string(number->constant);
    if (const auto* numbers = std::get_if<GraphNumbers>(&argument)) {
      std::string text;
      for (const BatchNumber& number : *numbers) text += text_of(number);
      return text;
    }
    if (const auto* real = std::get_if<double>(&argument)) return " " + std::to_string(*real);
    if (const auto* flag = std::get_if<bool>(&argument)) return *flag ? " true" : " false";
    return "";
  }

  void find_last_uses() {
    std::set<int> kept(outputs_.begin(), outputs_.end());
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      for (const std::vector<int>* values : {&step->reads, &step->writes})
        for (const int value : *values)
          if (value >= 0 && kept.insert(value).second) step->last_uses.push_back(value);
    }
    for (const WeightSpec& spec : specs_) {
      signature_ += ' ';
      for (const std::int64_t size : spec.shape) signature_ += std::to_string(size) + ',';
    }
  }

  std::vector<at::Tensor> run(const ForwardContext& context, std::span<const at::Tensor> weights,
                              std::span<const at::Tensor> inputs, at::Device device) const {
    std::vector<at::Tensor> values(slots_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) values[inputs_[i]] = inputs[i];
    for (std::size_t i = 0; i < weights_.size(); ++i) values[weights_[i]] = weights[i];
    for (const auto& [place, constant] : constants_) values[place] = constant.to(device);
    const std::int64_t batch = samples_input_ < 0 ? 0 : inputs[samples_input_].size(0);
    for (const Step& step : steps_) {
      try {
        perform(step, values, batch, context, device);
      } catch (const c10::Error& error) {
        if (!device.is_meta()) throw;
        throw kLayerErrors.user(step.line, "the values of the graph do not fit its operators",
                                "shapes that the operator accepts",
                                excerpt(error.what_without_backtrace()), "export the model again");
      }
      for (const int value : step.last_uses) values[value].reset();
    }
    std::vector<at::Tensor> results;
    for (const int output : outputs_) results.push_back(with_graph(values[output]));
    return results;
  }

  struct Step {
    std::variant<OperatorCall, DropoutStep, AttentionStep, BatchNormStep> run;
    std::vector<int> reads, writes;
    std::string line;                 // of the user's code
    std::vector<int> last_uses = {};  // values that nothing reads later
  };

  static void perform(const Step& step, std::vector<at::Tensor>& values, std::int64_t batch,
                      const ForwardContext& context, at::Device device) {
    std::visit(
        [&](const auto& each) {
          using T = std::decay_t<decltype(each)>;
          if constexpr (std::is_same_v<T, OperatorCall>) {
            each.run(values, batch, device);
          } else if constexpr (std::is_same_v<T, DropoutStep>) {
            values[each.y] = device.is_meta()
                                 ? values[each.x]
                                 : dropout(values[each.x].contiguous(), each.dropout, context);
          } else if constexpr (std::is_same_v<T, AttentionStep>) {
            values[each.y] =
                attend_with_dropout(values[each.q], values[each.k], values[each.v],
                                    {.mask = each.mask < 0 ? at::Tensor() : values[each.mask],
                                     .causal = each.causal,
                                     .scale = each.scale,
                                     .shares_keys = each.shares_keys},
                                    each.dropout, context);
          } else {
            values[each.y] = batch_norm(each, values, context);
          }
        },
        step.run);
  }

  // A pipeline passes a gradient back for every real value; nothing needs that of a value which no
  // weight affects, so it becomes a leaf.
  static at::Tensor with_graph(const at::Tensor& value) {
    if (!at::GradMode::is_enabled() || value.requires_grad() || !value.is_floating_point())
      return value;
    return value.detach().requires_grad_();
  }

  static at::Tensor batch_norm(const BatchNormStep& step, const std::vector<at::Tensor>& values,
                               const ForwardContext& context) {
    const auto value = [&](int place) { return place < 0 ? at::Tensor() : values[place]; };
    const at::Tensor &x = values[step.x], &mean = values[step.mean];
    if (!context.training)
      return at::batch_norm(x, value(step.gain), value(step.bias), mean, value(step.variance),
                            /*training=*/false, step.momentum, step.epsilon,
                            /*cudnn_enabled=*/false);
    const at::Tensor y = at::batch_norm(x, value(step.gain), value(step.bias), {}, {},
                                        /*training=*/true, step.momentum, step.epsilon,
                                        /*cudnn_enabled=*/false);
    if (!at::GradMode::is_enabled()) return y;
    std::vector<std::int64_t> others = {0};
    for (std::int64_t axis = 2; axis < x.dim(); ++axis) others.push_back(axis);
    const auto [variance, average] =
        at::var_mean(x.detach(), others, /*correction=*/at::Scalar(0), /*keepdim=*/false);
    return AddMoments::apply(y, mean, average, variance, x.numel() / x.size(1));
  }

  std::string signature_;
  std::map<std::string, int> slots_;
  std::set<std::string> statistics_;
  std::vector<int> inputs_, outputs_, weights_;
  std::vector<WeightSpec> specs_;
  std::vector<std::pair<int, at::Tensor>> constants_;
  std::vector<Step> steps_;
  int sites_ = 0;
  int samples_input_ = -1;  // an input whose first dimension is the samples
};

}  // namespace

std::string weight_in_piece(const GraphPiece& piece, const std::string& target) {
  return target.starts_with(piece.name + ".") ? target.substr(piece.name.size() + 1) : target;
}

std::shared_ptr<const Layer> graph_layer(const ExportedProgram& program, const GraphPiece& piece,
                                         const std::map<std::string, std::string>& ties) {
  return std::make_shared<GraphLayer>(program, piece, ties);
}

}  // namespace strata
