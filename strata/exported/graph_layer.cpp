// A value is let go after its last use, as in eager mode.
#include "strata/exported/graph_layer.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/exported/graph_step.h"
#include "strata/exported/operator_flops.h"
#include "strata/exported/python_layer.h"
#include "strata/nn/graph/running_layer.h"

namespace strata {
namespace {

constexpr ErrorSource kLayerErrors{"exported.read"};

class GraphLayer final : public Layer {
 public:
  GraphLayer(const ExportedProgram& program, const GraphPiece& piece,
             const GraphLayerOptions& options)
      : name_(piece.name) {
    for (const std::string& input : piece.inputs) {
      inputs_.push_back(slot(program, input));
      if (!samples_) samples_ = samples_place(program.shape(input));
    }
    std::set<std::string> parameters;
    for (const GraphInput& parameter : piece.parameters) {
      add_parameter(program, piece, parameter, options.ties);
      parameters.insert(parameter.name);
    }
    std::set<std::string> statistics;
    for (const GraphNode& node : piece.nodes)
      if (moves_statistics(node)) add_statistics(program, piece, node, statistics);
    for (const GraphInput& buffer : piece.buffers)
      if (!statistics.contains(buffer.name))
        constants_.emplace_back(slot(program, buffer.name), program.tensor(buffer.target));
    int dropouts = 0;
    const auto slot_of = [&](const std::string& value) { return slot(program, value); };
    for (const GraphNode& node : piece.nodes) {
      runs_python_ |= node.op == kPythonLayer;
      const std::optional<OwnStep> own =
          options.own_operations ? own_step(program, node, parameters, slot_of) : std::nullopt;
      steps_.push_back(own ? make_step(node, *own) : make_step(program, node, slot_of, dropouts));
      for (FlopTerm& term : operator_flops(program, node)) flops_.push_back(std::move(term));
    }
    for (const std::string& output : piece.outputs) outputs_.push_back(slot(program, output));
    find_last_uses();
    sign();
  }

  std::vector<WeightSpec> weights() const override { return specs_; }
  bool uses_aten_threads() const override { return true; }
  bool runs_python() const override { return runs_python_; }
  std::string signature() const override { return signature_; }

  // Those that the graph states: many operators compute shapes alone only in Python.
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    const std::int64_t samples = samples_of(inputs);
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (const TensorSpec expected = shapes_[inputs_[i]].at(samples); inputs[i] != expected)
        throw kLayerErrors.user("input of " + name_, "it does not fit the exported model",
                                text_of(expected), text_of(inputs[i]),
                                "export the model with inputs of these sizes");
    std::vector<TensorSpec> specs;
    for (const int output : outputs_) specs.push_back(shapes_[output].at(samples));
    return specs;
  }

  double forward_flops(std::span<const TensorSpec> inputs) const override {
    double operations = 0;
    for (const FlopTerm& term : flops_) operations += term.at(samples_of(inputs));
    return operations;
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
  // The size of an input that says how many samples there are.
  struct SamplesPlace {
    std::size_t input = 0, dimension = 0;
    BatchNumber number = {};
  };

  // Of the last input so far.
  std::optional<SamplesPlace> samples_place(const GraphShape& shape) const {
    for (std::size_t i = 0; i < shape.sizes.size(); ++i)
      if (shape.sizes[i].per_sample > 0)
        return SamplesPlace{.input = inputs_.size() - 1, .dimension = i, .number = shape.sizes[i]};
    return std::nullopt;
  }

  // `size_of(input, dimension)`: a size of an input.
  template <typename SizeOf>
  std::int64_t count_samples(SizeOf size_of) const {
    if (!samples_) return 0;
    const std::int64_t size = size_of(samples_->input, samples_->dimension);
    return (size - samples_->number.constant) / samples_->number.per_sample;
  }

  std::int64_t samples_of(std::span<const TensorSpec> inputs) const {
    return count_samples([&](std::size_t input, std::size_t dimension) {
      return inputs[input].shape.at(dimension);
    });
  }

  int slot(const ExportedProgram& program, const std::string& value) {
    const auto [place, is_new] = slots_.emplace(value, static_cast<int>(shapes_.size()));
    if (is_new) shapes_.push_back(program.shape(value));
    return place->second;
  }

  static std::string text_of(const TensorSpec& spec) {
    return c10::toString(spec.dtype) + c10::str(at::IntArrayRef(spec.shape));
  }

  // Whether the weight embeds, or is the last matrix before the model's output, which scores.
  static bool embeds_or_scores(const ExportedProgram& program, const GraphPiece& piece,
                               const std::string& parameter) {
    const bool makes_output = std::ranges::any_of(program.outputs(), [&](const std::string& value) {
      return std::ranges::find(piece.outputs, value) != piece.outputs.end();
    });
    const auto reads = [](const GraphNode& node, const std::string& name) {
      return std::ranges::any_of(node.arguments, [&](const auto& argument) {
        const auto* tensor = std::get_if<GraphTensor>(&argument.second);
        return tensor && tensor->name == name;
      });
    };
    const auto is_matrix = [&](const GraphInput& of) {
      return program.shape(of.name).sizes.size() >= 2;
    };
    bool is_last = makes_output;
    for (const GraphNode& node : std::views::reverse(piece.nodes)) {
      if (reads(node, parameter) && (is_last || node.op == "aten::embedding")) return true;
      if (std::ranges::any_of(piece.parameters, [&](const GraphInput& of) {
            return is_matrix(of) && reads(node, of.name);
          }))
        is_last = false;
    }
    return false;
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
                      .hidden_matrix = matrix && tie == ties.end() &&
                                       !embeds_or_scores(program, piece, parameter.name),
                      .tie = tie == ties.end() ? "" : tie->second});
    weights_.push_back(slot(program, parameter.name));
  }

  // A variance follows the mean of its columns.
  void add_statistics(const ExportedProgram& program, const GraphPiece& piece,
                      const GraphNode& node, std::set<std::string>& statistics) {
    for (const auto& [argument, statistic] : {std::pair("running_mean", Statistic::kMean),
                                              std::pair("running_var", Statistic::kVariance)}) {
      const std::string name = value_named(node, argument);
      const auto buffer = std::ranges::find(piece.buffers, name, &GraphInput::name);
      if (buffer == piece.buffers.end())
        throw kLayerErrors.user(node.line, "batch norm without running statistics",
                                "track_running_stats=True", "False",
                                "let batch norm track its statistics");
      if (!statistics.insert(name).second)
        throw kLayerErrors.user(node.line, "a batch norm is used twice", "one use of each", "two",
                                "make two layers");
      specs_.push_back(
          {.name = weight_in_piece(piece, buffer->target),
           .shape = {program.shape(name).sizes.at(0).constant},
           .init = {statistic == Statistic::kMean ? Init::Kind::kZeros : Init::Kind::kOnes},
           .statistic = statistic,
           .momentum = real_named(node, "momentum")});
      weights_.push_back(slot(program, name));
    }
  }

  void find_last_uses() {
    std::set<int> kept(outputs_.begin(), outputs_.end());
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
      for (const std::vector<int>* values : {&step->reads, &step->writes})
        for (const int value : *values)
          if (value >= 0 && kept.insert(value).second) step->last_uses.push_back(value);
  }

  void sign() {
    for (const GraphStep& step : steps_) signature_ += step.signature;
    for (const WeightSpec& spec : specs_) {
      signature_ += ' ';
      for (const std::int64_t size : spec.shape) signature_ += std::to_string(size) + ',';
    }
  }

  std::vector<at::Tensor> run(const ForwardContext& context, std::span<const at::Tensor> weights,
                              std::span<const at::Tensor> inputs, at::Device device) const {
    std::vector<at::Tensor> values(shapes_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) values[inputs_[i]] = inputs[i];
    for (std::size_t i = 0; i < weights_.size(); ++i) values[weights_[i]] = weights[i];
    for (const auto& [place, constant] : constants_) values[place] = constant.to(device);
    const StepRun run{.values = values,
                      .context = context,
                      .samples = count_samples([&](std::size_t input, std::size_t dimension) {
                        return inputs[input].size(static_cast<std::int64_t>(dimension));
                      }),
                      .device = device};
    const RunningLayer running(context);
    for (const GraphStep& step : steps_) {
      run_checked(step, run);
      for (const int value : step.last_uses) values[value].reset();
    }
    std::vector<at::Tensor> results;
    for (const int output : outputs_) results.push_back(result(values[output], weights));
    return results;
  }

  // A value of another shape or type than the graph states could let later operators read on.
  void run_checked(const GraphStep& step, const StepRun& run) const {
    try {
      run_step(step, run);
    } catch (c10::Error& error) {
      error.add_context("in " + step.line);
      throw;
    }
    for (const int write : step.writes) {
      if (write < 0) continue;
      const at::Tensor& value = run.values[write];
      const std::vector<BatchNumber>& sizes = shapes_[write].sizes;
      const bool fits = value.defined() && value.scalar_type() == shapes_[write].dtype &&
                        std::ranges::equal(value.sizes(), sizes,
                                           [&](std::int64_t size, const BatchNumber& number) {
                                             return size == number.at(run.samples);
                                           });
      if (!fits)
        throw kLayerErrors.user(
            step.line, "an operator returns another value than the graph states",
            text_of(shapes_[write].at(run.samples)),
            value.defined() ? text_of({value.sizes().vec(), value.scalar_type()}) : "none",
            "export the model again");
    }
  }

  // Weights may leave the device after the layer, so no output has their bytes. A pipeline passes a
  // gradient back for every real value; a value that no weight affects becomes a leaf.
  static at::Tensor result(const at::Tensor& value, std::span<const at::Tensor> weights) {
    if (std::ranges::any_of(weights,
                            [&](const at::Tensor& weight) { return value.is_alias_of(weight); }))
      return value.clone();
    if (!at::GradMode::is_enabled() || value.requires_grad() || !value.is_floating_point())
      return value;
    return value.detach().requires_grad_();
  }

  std::string name_, signature_;
  bool runs_python_ = false;
  std::map<std::string, int> slots_;
  std::vector<GraphShape> shapes_;  // by slot
  std::vector<int> inputs_, outputs_, weights_;
  std::vector<WeightSpec> specs_;
  std::vector<std::pair<int, at::Tensor>> constants_;
  std::vector<GraphStep> steps_;
  std::vector<FlopTerm> flops_;
  std::optional<SamplesPlace> samples_;  // none: no input depends on the samples
};

}  // namespace

std::string weight_in_piece(const GraphPiece& piece, const std::string& target) {
  return target.starts_with(piece.name + ".") ? target.substr(piece.name.size() + 1) : target;
}

std::shared_ptr<const Layer> graph_layer(const ExportedProgram& program, const GraphPiece& piece,
                                         const GraphLayerOptions& options) {
  return std::make_shared<GraphLayer>(program, piece, options);
}

}  // namespace strata
