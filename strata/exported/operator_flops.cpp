#include "strata/exported/operator_flops.h"

#include <functional>
#include <map>

#include "strata/exported/graph_step.h"

namespace strata {
namespace {

using Sizes = std::vector<BatchNumber>;

// The shapes of a node's arguments and of its first result.
class NodeShapes {
 public:
  NodeShapes(const ExportedProgram& program, const GraphNode& node)
      : program_(program), node_(node) {}

  /// Empty: the node has no such argument, or it is a number.
  Sizes of(const std::string& argument) const {
    const std::string value = value_named(node_, argument);
    return value.empty() ? Sizes() : program_.shape(value).sizes;
  }
  Sizes result() const {
    return node_.outputs.empty() || node_.outputs[0].empty()
               ? Sizes()
               : program_.shape(node_.outputs[0]).sizes;
  }

 private:
  const ExportedProgram& program_;
  const GraphNode& node_;
};

std::vector<FlopTerm> two_per(Sizes factors, const Sizes& more) {
  if (factors.empty() && more.empty()) return {};
  factors.insert(factors.end(), more.begin(), more.end());
  factors.push_back({.constant = 2});
  return {{std::move(factors)}};
}

// Every result is a sum over the last dimension of `argument`.
std::vector<FlopTerm> sums_over_last(const NodeShapes& shapes, const std::string& argument) {
  const Sizes summed = shapes.of(argument);
  return summed.empty() ? std::vector<FlopTerm>() : two_per(shapes.result(), {summed.back()});
}

// Every element of `each` meets one filter of the weight: [filters, inputs, ...].
std::vector<FlopTerm> filters(const NodeShapes& shapes, const Sizes& each) {
  const Sizes weight = shapes.of("weight");
  if (weight.empty()) return {};
  return two_per(each, {weight.begin() + 1, weight.end()});
}

// q [..., T, E], k [..., S, E], v [..., S, V]: T x S products of E, and of V. A causal mask saves
// nothing here, as where ATen attends on a CPU.
std::vector<FlopTerm> attention(const NodeShapes& shapes) {
  const Sizes q = shapes.of("query"), k = shapes.of("key"), v = shapes.of("value");
  if (q.size() < 2 || k.size() < 2 || v.size() < 2) return {};
  std::vector<FlopTerm> scores = two_per(q, {k[k.size() - 2]});
  const std::vector<FlopTerm> sums = two_per({q.begin(), q.end() - 1}, {k[k.size() - 2], v.back()});
  scores.insert(scores.end(), sums.begin(), sums.end());
  return scores;
}

using Rule = std::function<std::vector<FlopTerm>(const NodeShapes&)>;

const std::map<std::string, Rule>& rules() {
  const auto sums_over = [](const char* argument) {
    return [argument](const NodeShapes& shapes) { return sums_over_last(shapes, argument); };
  };
  const Rule convolution = [](const NodeShapes& s) { return filters(s, s.result()); };
  const Rule transposed = [](const NodeShapes& s) { return filters(s, s.of("input")); };
  static const auto& all = *new std::map<std::string, Rule>{
      {"aten::linear", sums_over("input")},   {"aten::addmm", sums_over("mat1")},
      {"aten::baddbmm", sums_over("batch1")}, {"aten::mm", sums_over("self")},
      {"aten::bmm", sums_over("self")},       {"aten::mv", sums_over("self")},
      {"aten::matmul", sums_over("self")},    {"aten::conv1d", convolution},
      {"aten::conv2d", convolution},          {"aten::conv3d", convolution},
      {"aten::conv_transpose1d", transposed}, {"aten::conv_transpose2d", transposed},
      {"aten::conv_transpose3d", transposed}, {"aten::scaled_dot_product_attention", attention},
  };
  return all;
}

}  // namespace

double FlopTerm::at(std::int64_t samples) const {
  double product = 1;
  for (const BatchNumber& factor : factors) product *= static_cast<double>(factor.at(samples));
  return product;
}

std::vector<FlopTerm> operator_flops(const ExportedProgram& program, const GraphNode& node) {
  const auto rule = rules().find(node.op);
  return rule == rules().end() ? std::vector<FlopTerm>() : rule->second({program, node});
}

}  // namespace strata
