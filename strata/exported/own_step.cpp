#include "strata/exported/own_step.h"

#include <algorithm>

#include "strata/exported/graph_step.h"
#include "strata/exported/operator_rules.h"
#include "strata/nn/ops/linear.h"

namespace strata {
namespace {

// The shape of a parameter of the layer; empty: the value is none.
std::vector<std::int64_t> parameter_shape(const ExportedProgram& program, const std::string& value,
                                          const std::set<std::string>& parameters) {
  if (!parameters.contains(value)) return {};
  std::vector<std::int64_t> shape;
  for (const BatchNumber& size : program.shape(value).sizes) shape.push_back(size.constant);
  return shape;
}

// The kernels need at least one row.
bool may_be_empty(const BatchNumber& size) {
  return size.constant < 0 || size.per_sample < 0 || size == BatchNumber{};
}

// Over the last dimension alone, of this size.
bool normalises_rows(const GraphNode& node, std::int64_t size) {
  const GraphArgument* shape = find_argument(node, "normalized_shape");
  const auto* sizes = shape ? std::get_if<GraphNumbers>(shape) : nullptr;
  return sizes && *sizes == GraphNumbers{{.constant = size}};
}

}  // namespace

std::optional<OwnStep> own_step(const ExportedProgram& program, const GraphNode& node,
                                const std::set<std::string>& parameters,
                                const std::function<int(const std::string&)>& slot_of) {
  using Shape = std::vector<std::int64_t>;
  const bool is_norm = node.op == "aten::layer_norm";
  if (!is_norm && node.op != "aten::linear") return std::nullopt;
  const std::string x = value_named(node, "input"), weight = value_named(node, "weight"),
                    bias = value_named(node, "bias");
  if (x.empty()) return std::nullopt;
  const GraphShape& input = program.shape(x);
  if (input.dtype != at::kFloat || input.sizes.size() < 2 || input.sizes.back().per_sample != 0 ||
      std::ranges::any_of(input.sizes, may_be_empty))
    return std::nullopt;
  const std::int64_t columns = input.sizes.back().constant;
  const Shape of_weight = parameter_shape(program, weight, parameters),
              of_bias = parameter_shape(program, bias, parameters);
  // The kernels trust these shapes, and the file may contradict itself.
  const bool fits =
      is_norm
          ? of_weight == Shape{columns} && of_bias == of_weight && normalises_rows(node, columns)
          : of_weight.size() == 2 && of_weight[0] > 0 && of_weight[1] == columns &&
                (bias.empty() || of_bias == Shape{of_weight[0]});
  if (!fits) return std::nullopt;
  return OwnStep{.is_norm = is_norm,
                 .x = slot_of(x),
                 .weight = slot_of(weight),
                 .bias = bias.empty() ? -1 : slot_of(bias),
                 .y = slot_of(node.outputs.at(0)),
                 .epsilon = is_norm && find_argument(node, "eps") ? real_named(node, "eps") : 1e-5};
}

void OwnStep::run(std::vector<at::Tensor>& values) const {
  const at::Tensor input = values[x].contiguous();
  const at::Tensor shift = bias < 0 ? at::Tensor() : values[bias];
  values[y] = is_norm
                  ? normalise(input, {.gain = values[weight], .bias = shift, .epsilon = epsilon})
                  : linear(input, values[weight], shift);
}

}  // namespace strata
