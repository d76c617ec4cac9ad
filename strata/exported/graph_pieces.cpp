#include "strata/exported/graph_pieces.h"

#include <algorithm>
#include <map>
#include <set>

#include "strata/base/error_source.h"
#include "strata/base/user_text.h"
#include "strata/exported/python_layer.h"
#include "strata/exported/random_step.h"

namespace strata {
namespace {

constexpr ErrorSource kCutErrors{"exported.cut"};

// "a.b.c" -> "a", "a.b", "a.b.c"
std::vector<std::string> prefixes(const std::string& path) {
  std::vector<std::string> all;
  for (std::size_t at = path.find('.'); at != std::string::npos; at = path.find('.', at + 1))
    all.push_back(path.substr(0, at));
  if (!path.empty()) all.push_back(path);
  return all;
}

bool is_container(const GraphModules& modules, const std::string& path) {
  const auto found = modules.find(path);
  if (found == modules.end()) return true;  // a list of modules is never called itself
  return found->second.starts_with("torch.nn.modules.container.");
}

// The modules whose submodules become pieces.
std::set<std::string> opened_modules(const ExportedProgram& program, const FunctionalGraph& graph) {
  std::map<std::string, std::size_t> counts;
  for (const GraphNode& node : graph.nodes)
    for (const std::string& path : prefixes(node.module)) ++counts[path];
  std::set<std::string> opened = {""};
  for (const auto& [path, count] : counts)
    if (is_container(program.modules(), path) || 2 * count > graph.nodes.size())
      opened.insert(path);
  return opened;
}

std::set<std::string> opened_by(const ExportedProgram& program,
                                const std::vector<std::string>& borders) {
  std::set<std::string> opened = {""};
  std::vector<std::string> known;
  for (const auto& [path, type] : program.modules()) known.push_back(path);
  for (const std::string& border : borders) {
    if (!program.modules().contains(border)) {
      const std::string nearest = nearest_name(border, known);
      throw kCutErrors.user(border, "the model has no such module", "a module that it calls",
                            border,
                            nearest.empty() ? "see the names of the model's modules"
                                            : "did you mean '" + nearest + "'?");
    }
    for (const std::string& path : prefixes(border))
      if (path != border) opened.insert(path);
  }
  return opened;
}

// The outermost module that is not opened; "" for a node between modules.
std::string piece_of(const std::string& module, const std::set<std::string>& opened) {
  for (const std::string& path : prefixes(module))
    if (!opened.contains(path)) return path;
  return "";
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

bool is_real(const GraphShape& shape) { return at::isFloatingType(shape.dtype); }

// A copy would draw other numbers, or add to statistics twice.
bool has_one_place(const GraphNode& node) {
  return is_random_step(node) || node.op == "aten::scaled_dot_product_attention" ||
         node.op == "aten::batch_norm" || node.op == kPythonLayer;
}

// Which values no weight affects.
class Dependence {
 public:
  Dependence(const ExportedProgram& program, const FunctionalGraph& graph) : graph_(graph) {
    for (const GraphInput& input : program.inputs())
      if (input.source == GraphSource::kBuffer || input.source == GraphSource::kInput)
        free_.insert(input.name);
    for (const GraphNode& node : graph.nodes) {
      bool free = !has_one_place(node);
      for_values(node, [&](const std::string& value) { free = free && free_.contains(value); });
      if (free) free_.insert(node.outputs.begin(), node.outputs.end());
    }
  }

  /// The nodes that make the values among these that no weight affects, from inputs and buffers.
  std::set<std::size_t> makers(std::set<std::string> values) const {
    std::set<std::size_t> nodes;
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      const GraphNode& node = graph_.nodes[i];
      const bool needed = std::ranges::any_of(node.outputs, [&](const std::string& output) {
        return free_.contains(output) && values.contains(output);
      });
      if (!needed) continue;
      nodes.insert(i);
      for_values(node, [&](const std::string& value) { values.insert(value); });
    }
    return nodes;
  }

 private:
  const FunctionalGraph& graph_;
  std::set<std::string> free_;
};

// Masks and positions, which no weight affects, are made in each piece that reads them: only values
// with a gradient travel between pieces.
void copy_free_nodes(std::vector<GraphPiece>& pieces, const FunctionalGraph& graph,
                     const Dependence& dependence) {
  for (GraphPiece& piece : pieces) {
    std::set<std::string> made;
    for (const GraphNode& node : piece.nodes) made.insert(node.outputs.begin(), node.outputs.end());
    std::set<std::string> read;
    for (const GraphNode& node : piece.nodes)
      for_values(node, [&](const std::string& value) {
        if (!made.contains(value)) read.insert(value);
      });
    std::vector<GraphNode> nodes;
    for (const std::size_t node : dependence.makers(std::move(read)))
      if (!made.contains(graph.nodes[node].outputs.at(0))) nodes.push_back(graph.nodes[node]);
    nodes.insert(nodes.end(), piece.nodes.begin(), piece.nodes.end());
    piece.nodes = std::move(nodes);
  }
}

bool counts_samples(const GraphNode& node) {
  const auto counts = [](const BatchNumber& number) { return number.per_sample != 0; };
  return std::ranges::any_of(node.arguments, [&](const auto& argument) {
    if (const auto* number = std::get_if<BatchNumber>(&argument.second)) return counts(*number);
    const auto* numbers = std::get_if<GraphNumbers>(&argument.second);
    return numbers && std::ranges::any_of(*numbers, counts);
  });
}

// A piece whose sizes depend on the number of samples reads a value that has them.
void add_samples(GraphPiece& piece, const ExportedProgram& program) {
  const auto has_samples = [&](const std::string& value) {
    return std::ranges::any_of(program.shape(value).sizes,
                               [](const BatchNumber& size) { return size.per_sample > 0; });
  };
  if (std::ranges::none_of(piece.nodes, counts_samples) ||
      std::ranges::any_of(piece.inputs, has_samples))
    return;
  const auto input = std::ranges::find(program.inputs(), GraphSource::kInput, &GraphInput::source);
  piece.inputs.push_back(input->name);
}

void connect(std::vector<GraphPiece>& pieces, const ExportedProgram& program,
             const FunctionalGraph& graph) {
  std::map<std::string, GraphInput> inputs;
  for (const GraphInput& input : program.inputs()) inputs[input.name] = input;
  std::map<std::string, std::size_t> makers;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    GraphPiece& piece = pieces[i];
    std::set<std::string> read, made;
    for (const GraphNode& node : piece.nodes) {
      for_values(node, [&](const std::string& value) {
        if (!read.insert(value).second) return;
        const auto input = inputs.find(value);
        if (input != inputs.end() && input->second.source == GraphSource::kParameter) {
          piece.parameters.push_back(input->second);
        } else if (input != inputs.end() && input->second.source == GraphSource::kInput) {
          piece.inputs.push_back(value);
        } else if (input != inputs.end()) {
          piece.buffers.push_back(input->second);
        } else if (!made.contains(value)) {
          const std::size_t maker = makers.at(value);
          if (!is_real(program.shape(value)))
            throw kCutErrors.user(
                node.line, "a value that has no gradient would travel between layers",
                "borders that only real numbers cross", value, "choose other borders, or none");
          piece.inputs.push_back(value);
          add_once(pieces[maker].outputs, value);
        }
      });
      made.insert(node.outputs.begin(), node.outputs.end());
      for (const std::string& output : node.outputs) makers.emplace(output, i);
    }
  }
  for (GraphPiece& piece : pieces) add_samples(piece, program);
  for (const std::string& output : graph.outputs) {
    const auto maker = makers.find(output);
    if (maker == makers.end())
      throw kCutErrors.user(output, "the model returns a value that it does not compute",
                            "the result of an operator", "an input or a weight");
    add_once(pieces[maker->second].outputs, output);
  }
}

}  // namespace

std::vector<GraphPiece> cut_graph(const ExportedProgram& program, const FunctionalGraph& graph,
                                  const std::vector<std::string>& borders) {
  const std::set<std::string> opened =
      borders.empty() ? opened_modules(program, graph) : opened_by(program, borders);
  std::vector<GraphPiece> pieces;
  std::map<std::string, int> uses;
  std::string current;
  for (const GraphNode& node : graph.nodes) {
    std::string path = piece_of(node.module, opened);
    if (path.empty() && !pieces.empty()) path = current;
    if (pieces.empty() || path != current) {
      const int use = ++uses[path];
      const std::string name = path.empty() ? "(model)" : path;
      pieces.push_back({.name = use == 1 ? name : name + "#" + std::to_string(use)});
    }
    current = path;
    pieces.back().nodes.push_back(node);
  }
  const Dependence dependence(program, graph);
  copy_free_nodes(pieces, graph, dependence);
  connect(pieces, program, graph);
  // Nothing reads what a piece without outputs computes.
  std::erase_if(pieces, [](const GraphPiece& piece) { return piece.outputs.empty(); });
  return pieces;
}

}  // namespace strata
