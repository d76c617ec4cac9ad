#include "strata/exported/graph_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "strata/base/error_source.h"
#include "strata/exported/operator_rules.h"
#include "strata/exported/python_layer.h"
#include "strata/nn/graph/moments.h"

namespace strata {
namespace {

constexpr ErrorSource kStepErrors{"exported.read"};

// The backward adds the micro-batch's moments, because it runs once.
struct AddMoments : torch::autograd::Function<AddMoments> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& y,
                            const at::Tensor& running_mean, const at::Tensor& mean,
                            const at::Tensor& variance, std::int64_t values) {
    context->save_for_backward({running_mean, mean, variance});
    context->saved_data["values"] = values;
    return y.view_as(y);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    add_moments(saved[0].grad(),
                moments_of(context->saved_data.at("values").toInt(), saved[1], saved[2]));
    return {gradients[0], {}, {}, {}, {}};
  }
};

at::Tensor value_at(const std::vector<at::Tensor>& values, int slot) {
  return slot < 0 ? at::Tensor() : values[slot];
}

using SlotOf = std::function<int(const std::string&)>;

int optional_slot(const GraphNode& node, const char* name, const SlotOf& slot_of) {
  const std::string value = value_named(node, name);
  return value.empty() ? -1 : slot_of(value);
}

GraphStep drawn_step(const ExportedProgram& program, const GraphNode& node, const SlotOf& slot_of,
                     int& dropouts) {
  const DrawnStep step{.x = slot_of(random_input(node)),
                       .y = slot_of(node.outputs.at(0)),
                       .random = random_step(program, node, dropouts)};
  return {.what = step,
          .reads = {step.x},
          .writes = {step.y},
          .signature = std::to_string(step.random.dropout.probability)};
}

GraphStep attention_step(const ExportedProgram& program, const GraphNode& node,
                         const SlotOf& slot_of, int& dropouts) {
  const std::string q = value_named(node, "query");
  require_samples(program, node, q);
  AttentionStep step{.q = slot_of(q),
                     .k = slot_of(value_named(node, "key")),
                     .v = slot_of(value_named(node, "value")),
                     .mask = optional_slot(node, "attn_mask", slot_of),
                     .y = slot_of(node.outputs.at(0)),
                     .causal = flag_named(node, "is_causal"),
                     .shares_keys = flag_named(node, "enable_gqa"),
                     .dropout = next_dropout(node, real_named(node, "dropout_p"), dropouts)};
  const GraphArgument* scale = find_argument(node, "scale");
  if (scale && !std::holds_alternative<GraphNone>(*scale)) step.scale = real_named(node, "scale");
  return {.what = step,
          .reads = {step.q, step.k, step.v, step.mask},
          .writes = {step.y},
          .signature = std::to_string(step.dropout.probability)};
}

GraphStep batch_norm_step(const GraphNode& node, const SlotOf& slot_of) {
  const BatchNormStep step{.x = slot_of(value_named(node, "input")),
                           .y = slot_of(node.outputs.at(0)),
                           .gain = optional_slot(node, "weight", slot_of),
                           .bias = optional_slot(node, "bias", slot_of),
                           .mean = slot_of(value_named(node, "running_mean")),
                           .variance = slot_of(value_named(node, "running_var")),
                           .epsilon = real_named(node, "eps"),
                           .line = node.line};
  return {.what = step,
          .reads = {step.x, step.gain, step.bias, step.mean, step.variance},
          .writes = {step.y}};
}

std::string text_of(const GraphArgument& argument) {
  if (const auto* number = std::get_if<BatchNumber>(&argument))
    return " " + std::to_string(number->per_sample) + "n+" + std::to_string(number->constant);
  if (const auto* numbers = std::get_if<GraphNumbers>(&argument)) {
    std::string text;
    for (const BatchNumber& number : *numbers) text += text_of(number);
    return text;
  }
  if (const auto* real = std::get_if<double>(&argument)) return " " + std::to_string(*real);
  if (const auto* flag = std::get_if<bool>(&argument)) return *flag ? " true" : " false";
  if (const auto* text = std::get_if<std::string>(&argument)) return " " + *text;
  return "";
}

GraphStep operator_step(const GraphNode& node, const SlotOf& slot_of) {
  OperatorCall call(node, slot_of);
  const std::vector<int> reads = call.reads(), writes = call.writes();
  std::string signature;
  for (const auto& [name, argument] : node.arguments)
    if (node.op != kPythonLayer || name != "pipeline") signature += text_of(argument);
  return {
      .what = std::move(call), .reads = reads, .writes = writes, .signature = std::move(signature)};
}

GraphStep step_of(const ExportedProgram& program, const GraphNode& node, const SlotOf& slot_of,
                  int& dropouts) {
  if (is_random_step(node)) return drawn_step(program, node, slot_of, dropouts);
  if (node.op == "aten::scaled_dot_product_attention" && find_argument(node, "dropout_p") &&
      real_named(node, "dropout_p") > 0)
    return attention_step(program, node, slot_of, dropouts);
  if (moves_statistics(node)) return batch_norm_step(node, slot_of);
  return operator_step(node, slot_of);
}

// Adds what a step says of itself in a layer's signature and in errors.
GraphStep described(GraphStep step, const GraphNode& node) {
  std::string slots;
  for (const int read : step.reads) slots += ' ' + std::to_string(read);
  step.signature = node.op + "." + node.overload + slots + " " + step.signature + "\n";
  step.line = node.line;
  return step;
}

}  // namespace

std::string value_named(const GraphNode& node, const std::string& argument) {
  const GraphArgument* found = find_argument(node, argument);
  const auto* tensor = found ? std::get_if<GraphTensor>(found) : nullptr;
  return tensor ? tensor->name : "";
}

bool flag_named(const GraphNode& node, const std::string& name) {
  const GraphArgument* found = find_argument(node, name);
  const auto* flag = found ? std::get_if<bool>(found) : nullptr;
  return flag && *flag;
}

double real_named(const GraphNode& node, const std::string& argument) {
  if (const GraphArgument* found = find_argument(node, argument)) {
    if (const auto* real = std::get_if<double>(found)) return *real;
    const auto* number = std::get_if<BatchNumber>(found);
    if (number && number->per_sample == 0) return static_cast<double>(number->constant);
  }
  throw kStepErrors.user(node.line, node.op + " needs a fixed " + argument, "a number", "none",
                         "give it a number");
}

bool moves_statistics(const GraphNode& node) {
  return node.op == "aten::batch_norm" && flag_named(node, "training");
}

GraphStep make_step(const ExportedProgram& program, const GraphNode& node,
                    const std::function<int(const std::string&)>& slot_of, int& dropouts) {
  return described(step_of(program, node, slot_of, dropouts), node);
}

GraphStep make_step(const GraphNode& node, const OwnStep& own) {
  return described(
      {.what = own, .reads = {own.x, own.weight, own.bias}, .writes = {own.y}, .signature = "own"},
      node);
}

void run_step(const GraphStep& step, const StepRun& run) {
  std::visit(
      [&](const auto& what) {
        using Step = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<Step, OperatorCall>) {
          what.run(run.values, run.samples, run.device);
        } else if constexpr (std::is_same_v<Step, OwnStep>) {
          what.run(run.values);
        } else {
          what.run(run);
        }
      },
      step.what);
}

void DrawnStep::run(const StepRun& run) const {
  run.values[y] = random.apply(run.values[x], run.samples, run.context);
}

void AttentionStep::run(const StepRun& run) const {
  run.values[y] = attend_with_dropout(run.values[q], run.values[k], run.values[v],
                                      {.mask = value_at(run.values, mask),
                                       .causal = causal,
                                       .scale = scale,
                                       .shares_keys = shares_keys},
                                      run.samples, dropout, run.context);
}

void BatchNormStep::run(const StepRun& run) const {
  const at::Tensor &input = run.values[x], &running_mean = run.values[mean];
  const at::Tensor weight = value_at(run.values, gain), shift = value_at(run.values, bias);
  if (!run.context.training) {
    run.values[y] = at::batch_norm(input, weight, shift, running_mean, run.values[variance],
                                   /*training=*/false, /*momentum=*/0, epsilon,
                                   /*cudnn_enabled=*/false);
    return;
  }
  const std::int64_t count = input.numel() / std::max<std::int64_t>(1, input.size(1));
  if (count < 2)
    throw kStepErrors.user(line, "one value of a channel has no variance",
                           "at least 2 in each micro-batch of a replica", std::to_string(count),
                           "choose larger micro-batches");
  // With momentum 1 the operator returns the micro-batch's statistics here.
  const at::Tensor average = at::zeros_like(running_mean.detach());
  const at::Tensor unbiased = at::zeros_like(average);
  const at::Tensor normalised =
      at::batch_norm(input, weight, shift, average, unbiased, /*training=*/true,
                     /*momentum=*/1, epsilon, /*cudnn_enabled=*/false);
  const double biased = static_cast<double>(count - 1) / static_cast<double>(count);
  run.values[y] = at::GradMode::is_enabled() ? AddMoments::apply(normalised, running_mean, average,
                                                                 unbiased * biased, count)
                                             : normalised;
}

}  // namespace strata
