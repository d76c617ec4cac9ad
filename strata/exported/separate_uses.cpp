#include "strata/exported/separate_uses.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <set>

namespace strata {
namespace {

// A place of a value among the arguments of a node.
struct Use {
  std::size_t piece = 0, node = 0;
  GraphTensor* place = nullptr;  // null: the model's output
};

// All places of tensors, in the order of the arguments.
std::vector<GraphTensor*> places_of(GraphNode& node) {
  std::vector<GraphTensor*> places;
  for (auto& [name, argument] : node.arguments) {
    if (auto* tensor = std::get_if<GraphTensor>(&argument)) places.push_back(tensor);
    if (auto* tensors = std::get_if<GraphTensors>(&argument))
      for (GraphTensor& each : *tensors) places.push_back(&each);
  }
  return places;
}

bool reads(GraphNode& node, const std::string& value) {
  return std::ranges::any_of(places_of(node),
                             [&](const GraphTensor* place) { return place->name == value; });
}

// From the use whose gradient eager mode adds last to the one that it adds first: nodes in the
// order of the graph, the arguments of a node from the last to the first.
std::vector<Use> uses_of(const std::string& value, std::vector<GraphPiece>& pieces,
                         std::size_t maker, bool is_output) {
  std::vector<Use> uses;
  for (std::size_t p = maker + 1; p < pieces.size(); ++p) {
    if (std::ranges::find(pieces[p].inputs, value) == pieces[p].inputs.end()) continue;
    for (std::size_t n = 0; n < pieces[p].nodes.size(); ++n) {
      const std::vector<GraphTensor*> places = places_of(pieces[p].nodes[n]);
      for (GraphTensor* place : std::views::reverse(places))
        if (place->name == value) uses.push_back({p, n, place});
    }
  }
  if (is_output) uses.push_back({.piece = pieces.size()});
  return uses;
}

// How many of the first uses need a name of their own: the others are of different pieces, whose
// gradients are added from the last to the first anyway.
std::ptrdiff_t separate_count(const std::vector<Use>& uses) {
  std::set<std::size_t> all, last;
  for (const Use& use : uses) all.insert(use.piece);
  if (all.size() < 2) return 0;
  const auto repeated = std::find_if(
      uses.rbegin(), uses.rend(), [&](const Use& use) { return !last.insert(use.piece).second; });
  return std::distance(repeated, uses.rend());
}

}  // namespace

void separate_uses(std::vector<GraphPiece>& pieces, const std::vector<std::string>& outputs,
                   ExportedProgram& program) {
  for (std::size_t maker = 0; maker < pieces.size(); ++maker) {
    const std::vector<std::string> values = pieces[maker].outputs;
    for (const std::string& value : values) {
      const bool is_output = std::ranges::find(outputs, value) != outputs.end();
      const std::vector<Use> uses = uses_of(value, pieces, maker, is_output);
      const std::ptrdiff_t count = separate_count(uses);
      // A later alias has its backward first.
      for (std::ptrdiff_t i = 0; i < count; ++i) {
        const Use& use = uses[static_cast<std::size_t>(i)];
        GraphPiece& reader = pieces[use.piece];
        const std::string alias = value + "#" + std::to_string(i + 1);
        program.add_value(alias, value);
        pieces[maker].nodes.push_back({.op = "aten::alias",
                                       .overload = "",
                                       .arguments = {{"self", GraphTensor{value}}},
                                       .outputs = {alias},
                                       .line = reader.nodes[use.node].line});
        pieces[maker].outputs.push_back(alias);
        use.place->name = alias;
        reader.inputs.push_back(alias);
        if (std::ranges::none_of(reader.nodes, [&](GraphNode& node) { return reads(node, value); }))
          std::erase(reader.inputs, value);
      }
    }
  }
}

}  // namespace strata
