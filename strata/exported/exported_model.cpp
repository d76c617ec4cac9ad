#include "strata/exported/exported_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "strata/base/error_source.h"
#include "strata/base/ignored_target.h"
#include "strata/device/account.h"
#include "strata/exported/graph_layer.h"
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

// The sum of the losses of a micro-batch, times the step's scale.
class SumOfLosses final : public Layer {
 public:
  explicit SumOfLosses(ExportedLoss loss) : loss_(loss) {}

  bool is_loss() const override { return true; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    std::vector<std::int64_t> expected = inputs[0].shape;
    if (loss_ == ExportedLoss::kCrossEntropy && !expected.empty()) expected.pop_back();
    if (inputs[1].shape != expected)
      throw kModelErrors.user("targets", "they do not fit the model's output", text_of(expected),
                              text_of(inputs[1].shape), "give each output one target");
    return {{}};
  }
  std::string signature() const override {
    return loss_ == ExportedLoss::kCrossEntropy ? "cross entropy" : "squared error";
  }

  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor sum = loss(context, inputs[0], inputs[1]);
    if (context.loss) context.loss->sum += sum.detach().to(at::kDouble);
    return {sum * context.loss_scale};
  }

 private:
  at::Tensor loss(const ForwardContext& context, const at::Tensor& output,
                  const at::Tensor& targets) const {
    if (loss_ == ExportedLoss::kSquaredError) return (output - targets).square().sum();
    return at::cross_entropy_loss(output.reshape({-1, output.size(-1)}), targets.reshape({-1}), {},
                                  at::Reduction::Sum, kIgnoredTarget, context.label_smoothing);
  }

  ExportedLoss loss_;
};

}  // namespace

ExportedModel::ExportedModel(const std::string& path, const std::vector<std::string>& borders)
    : path_(path), program_(ExportedProgram::read(path)) {
  const FunctionalGraph graph = reading_model(path, [&] { return functional_graph(program_); });
  pieces_ = reading_model(path, [&] { return cut_graph(program_, graph, borders); });
  for (const GraphInput& input : program_.inputs())
    if (input.source == GraphSource::kInput) inputs_.push_back(input.name);
  if (graph.outputs.size() != 1)
    throw kModelErrors.user(path, "the model has more than one output", "one tensor",
                            std::to_string(graph.outputs.size()),
                            "export a module that returns what the loss needs");
  output_ = graph.outputs[0];
  std::map<std::string, int> uses;
  for (const GraphPiece& piece : pieces_)
    for (const GraphInput& parameter : piece.parameters) ++uses[parameter.target];
  for (const auto& [target, count] : uses)
    if (count > 1) ties_[target] = target;
}

Sequential ExportedModel::layers(ExportedLoss loss) const {
  std::vector<std::string> batch = inputs_;
  batch.emplace_back(kTargets);
  Sequential model(std::move(batch));
  for (const GraphPiece& piece : pieces_)
    model.add(piece.name, reading_model(path_, [&] { return graph_layer(program_, piece, ties_); }),
              piece.inputs, piece.outputs);
  model.add("(loss)", std::make_shared<SumOfLosses>(loss), {output_, kTargets}, {"(loss)"});
  return model;
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
  for (const NamedState& state : states) {
    const at::Tensor whole = program_.tensor(names.at(state.name)).view({-1});
    for (const Run& run : state.runs)
      state.local.narrow(0, run.local, run.numel).copy_(whole.narrow(0, run.global, run.numel));
  }
}

}  // namespace strata
