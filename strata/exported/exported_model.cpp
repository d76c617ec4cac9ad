#include "strata/exported/exported_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/movedim.h>

#include <algorithm>

#include "strata/base/checksum.h"
#include "strata/base/enum_names.h"
#include "strata/base/error_source.h"
#include "strata/base/ignored_target.h"
#include "strata/device/account.h"
#include "strata/exported/graph_layer.h"
#include "strata/exported/separate_uses.h"
#include "strata/nn/aten/aten_scope.h"
#include "strata/nn/graph/weight_name.h"

namespace strata {
namespace {

constexpr ErrorSource kModelErrors{"exported.model"};
// No module and no value of a graph has such a name.
constexpr const char* kTargets = "(targets)";

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

bool has_classes(ExportedLoss loss) {
  return loss == ExportedLoss::kCrossEntropy || loss == ExportedLoss::kCrossEntropyOfChannels;
}

// The dimension of the classes.
std::int64_t class_dimension(ExportedLoss loss, std::int64_t dimensions) {
  return loss == ExportedLoss::kCrossEntropyOfChannels ? 1 : dimensions - 1;
}

// The targets of an output.
TensorSpec targets_of(ExportedLoss loss, TensorSpec output) {
  if (!has_classes(loss)) return output;
  const auto dimensions = static_cast<std::int64_t>(output.shape.size());
  if (dimensions < 2)
    throw kModelErrors.user("loss", "the model's output has no dimension of classes",
                            "[samples, ..., classes]", text_of(output.shape),
                            std::string("take another loss than ") + name_of(loss));
  output.shape.erase(output.shape.begin() + class_dimension(loss, dimensions));
  output.dtype = at::kLong;
  return output;
}

// The sum of the losses of a micro-batch, times the step's scale.
class SumOfLosses final : public Layer {
 public:
  explicit SumOfLosses(ExportedLoss loss) : loss_(loss) {}

  bool is_loss() const override { return true; }
  bool uses_aten_threads() const override { return true; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    if (const TensorSpec expected = targets_of(loss_, inputs[0]); inputs[1] != expected)
      throw kModelErrors.user("targets", "they do not fit the model's output",
                              text_of(expected.shape), text_of(inputs[1].shape),
                              "give each output one target");
    return {{}};
  }
  std::string signature() const override { return name_of(loss_); }

  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor sum = loss(context, inputs[0], inputs[1]);
    if (context.loss) context.loss->sum += sum.detach().to(at::kDouble);
    if (has_classes(loss_) && context.loss && context.loss->scores && !context.training)
      context.loss->scores->push_back(right_answers(inputs[0], inputs[1]));
    if (!context.scalars) return {sum * context.loss_scale};
    // A recorded step reads the factor of the step in which it runs.
    const at::Tensor factor = gradient_scale(context.loss_scale, context.scalars, sum);
    return {(sum.to(at::kDouble) * factor).to(sum.scalar_type())};
  }

 private:
  // Of each sample.
  at::Tensor right_answers(const at::Tensor& output, const at::Tensor& targets) const {
    const at::Tensor answers = output.argmax(class_dimension(loss_, output.dim()));
    return answers.eq(targets).to(at::kFloat).view({output.size(0), -1}).sum(1);
  }

  at::Tensor loss(const ForwardContext& context, const at::Tensor& output,
                  const at::Tensor& targets) const {
    if (has_classes(loss_)) {
      const at::Tensor rows = output.movedim(class_dimension(loss_, output.dim()), -1);
      return at::cross_entropy_loss(rows.reshape({-1, rows.size(-1)}), targets.reshape({-1}), {},
                                    at::Reduction::Sum, kIgnoredTarget, context.label_smoothing);
    }
    const at::Tensor none = targets.isnan(), known = targets.nan_to_num();
    const at::Tensor each =
        loss_ == ExportedLoss::kSquaredError
            ? (output - known).square()
            : at::binary_cross_entropy_with_logits(output, known, {}, {}, at::Reduction::None);
    return each.masked_fill(none, 0).sum();
  }

  ExportedLoss loss_;
};

}  // namespace

const char* name_of(ExportedLoss loss) {
  using enum ExportedLoss;
  static constexpr EnumNames<ExportedLoss> kNames{
      {kCrossEntropy, "cross_entropy"},
      {kCrossEntropyOfChannels, "cross_entropy_of_channels"},
      {kBinaryCrossEntropy, "binary_cross_entropy"},
      {kSquaredError, "squared_error"}};
  return kNames[loss];
}

ExportedModel::ExportedModel(const std::string& path, const std::vector<std::string>& borders)
    : path_(path), program_(ExportedProgram::read(path)) {
  const FunctionalGraph graph = reading_model(path, [&] { return functional_graph(program_); });
  for (const auto& [name, like] : graph.new_values) program_.add_value(name, like);
  pieces_ = reading_model(path, [&] { return cut_graph(program_, graph, borders); });
  separate_uses(pieces_, graph.outputs, program_);
  for (const GraphInput& input : program_.inputs())
    if (input.source == GraphSource::kInput) inputs_.push_back(input.name);
  if (graph.outputs.size() != 1)
    throw kModelErrors.user(path, "the model has more than one output", "one tensor",
                            std::to_string(graph.outputs.size()),
                            "export a module that returns what the loss needs");
  output_ = graph.outputs[0];
  const GraphShape& shape = program_.shape(output_);
  if (!at::isFloatingType(shape.dtype) || !shape.begins_with_samples())
    throw kModelErrors.user(path, "the model's output has no real numbers for each sample",
                            "real numbers [samples, ...]",
                            shape.sizes.empty() ? "one number for all samples"
                                                : "another type, or another first dimension",
                            "export a module that returns an output for each sample");
  std::map<std::string, int> uses;
  for (const GraphPiece& piece : pieces_)
    for (const GraphInput& parameter : piece.parameters) ++uses[parameter.target];
  for (const auto& [target, count] : uses)
    if (count > 1) ties_[target] = target;
}

Sequential ExportedModel::layers(ExportedLoss loss, bool own_operations) const {
  std::vector<std::string> batch = inputs_;
  batch.emplace_back(kTargets);
  Sequential model(std::move(batch));
  for (const GraphPiece& piece : pieces_)
    model.add(
        piece.name,
        reading_model(path_, [&] { return graph_layer(program_, piece, {ties_, own_operations}); }),
        piece.inputs, piece.outputs);
  model.add("(loss)", std::make_shared<SumOfLosses>(loss), {output_, kTargets}, {"(loss)"});
  return model;
}

std::vector<TensorSpec> ExportedModel::batch_inputs(ExportedLoss loss, std::int64_t samples) const {
  std::vector<TensorSpec> specs;
  for (const std::string& input : inputs_) specs.push_back(program_.shape(input).at(samples));
  specs.push_back(targets_of(loss, program_.shape(output_).at(samples)));
  return specs;
}

std::int64_t ExportedModel::classes(ExportedLoss loss) const {
  if (!has_classes(loss)) return 0;
  const TensorSpec output = program_.shape(output_).at(1);
  targets_of(loss, output);  // refuses an output without classes
  return output.shape.at(class_dimension(loss, std::ssize(output.shape)));
}

bool ExportedModel::has_frozen_parameters() const {
  return std::ranges::any_of(program_.inputs(), [](const GraphInput& input) {
    return input.source == GraphSource::kFrozen;
  });
}

std::string ExportedModel::identity() const {
  std::string text;
  std::size_t weights = 0;
  const auto add = [&](const std::string& value) {
    text += ' ' + value;
    if (value.empty()) return;
    for (const BatchNumber& size : program_.shape(value).sizes)
      text += ' ' + std::to_string(size.per_sample) + 'n' + std::to_string(size.constant);
  };
  for (const GraphPiece& piece : pieces_) {
    text += piece.name;
    weights += piece.parameters.size();
    for (const GraphInput& parameter : piece.parameters) add(parameter.name);
    for (const GraphNode& node : piece.nodes) {
      text += '\n' + node.op + '.' + node.overload;
      for_values(node, add);
      for (const std::string& output : node.outputs) add(output);
    }
    text += '\n';
  }
  return std::to_string(weights) + " weights, graph " +
         checksum_text(checksum(std::as_bytes(std::span(text))));
}

std::map<std::string, std::string> ExportedModel::state_names(const Sequential& model) const {
  std::map<std::string, std::string> names;
  for (int layer = 0; layer < static_cast<int>(pieces_.size()); ++layer) {
    const GraphPiece& piece = pieces_[layer];
    std::map<std::string, std::string> own;
    for (const std::vector<GraphInput>* inputs : {&piece.parameters, &piece.buffers})
      for (const GraphInput& input : *inputs)
        own[weight_in_piece(piece, input.target)] = input.target;
    for (const WeightSpec& spec : model.layout(layer).specs)
      names.emplace(weight_name(model, layer, spec), own.at(spec.name));
  }
  return names;
}

void ExportedModel::fill(const std::vector<NamedState>& states,
                         const std::map<std::string, std::string>& names) const {
  const UnchargedScope reading;
  for (const NamedState& state : states) assign_whole(state, program_.tensor(names.at(state.name)));
}

}  // namespace strata
