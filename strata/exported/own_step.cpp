#include "strata/exported/own_step.h"

#include "strata/exported/graph_step.h"
#include "strata/exported/operator_rules.h"
#include "strata/nn/ops/linear.h"

namespace strata {
namespace {

bool is_fp32(const ExportedProgram& program, const std::string& value) {
  return !value.empty() && program.shape(value).dtype == at::kFloat;
}

// Over the last dimension alone.
bool is_norm_of_rows(const GraphNode& node) {
  const GraphArgument* shape = find_argument(node, "normalized_shape");
  const auto* sizes = shape ? std::get_if<GraphNumbers>(shape) : nullptr;
  return node.op == "aten::layer_norm" && sizes && sizes->size() == 1;
}

}  // namespace

std::optional<OwnStep> own_step(const ExportedProgram& program, const GraphNode& node,
                                const std::set<std::string>& parameters,
                                const std::function<int(const std::string&)>& slot_of) {
  const bool is_norm = is_norm_of_rows(node);
  if (!is_norm && node.op != "aten::linear") return std::nullopt;
  const std::string x = value_named(node, "input"), weight = value_named(node, "weight"),
                    bias = value_named(node, "bias");
  const bool has_bias = !bias.empty();
  // Without a bias it would be another norm.
  if (!is_fp32(program, x) || !parameters.contains(weight) || !is_fp32(program, weight) ||
      (has_bias && !parameters.contains(bias)) || (is_norm && !has_bias))
    return std::nullopt;
  const GraphArgument* epsilon = find_argument(node, "eps");
  return OwnStep{.is_norm = is_norm,
                 .x = slot_of(x),
                 .weight = slot_of(weight),
                 .bias = has_bias ? slot_of(bias) : -1,
                 .y = slot_of(node.outputs.at(0)),
                 .epsilon = is_norm && epsilon ? real_named(node, "eps") : 1e-5};
}

void OwnStep::run(std::vector<at::Tensor>& values) const {
  const at::Tensor input = values[x].contiguous();
  const at::Tensor shift = bias < 0 ? at::Tensor() : values[bias];
  values[y] = is_norm
                  ? normalise(input, {.gain = values[weight], .bias = shift, .epsilon = epsilon})
                  : linear(input, values[weight], shift);
}

}  // namespace strata
