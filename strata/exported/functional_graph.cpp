#include "strata/exported/functional_graph.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/exported/operator_rules.h"

namespace strata {
namespace {

constexpr ErrorSource kGraphErrors{"exported.read"};

UserError refuse(const GraphNode& node, const std::string& what, const std::string& fix) {
  return kGraphErrors.user(node.line.empty() ? node.module : node.line, what,
                           "operators that only return values", node.op, fix);
}

// Which values may share their bytes, and when each is read for the last time.
class Aliases {
 public:
  explicit Aliases(const ExportedProgram& program) {
    const std::vector<GraphNode>& nodes = program.nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const auto& [name, argument] : nodes[i].arguments) {
        const bool shares = may_share_bytes(nodes[i], name);
        for_values(argument, [&](const std::string& value) {
          last_reads_[value] = i;
          if (!shares) return;
          for (const std::string& output : nodes[i].outputs) join(value, output);
        });
      }
      for (const std::string& output : nodes[i].outputs) makers_[output] = i;
    }
    for (const std::string& output : program.outputs()) last_reads_[output] = nodes.size();
  }

  /// One of the values with these bytes, the same for all of them.
  std::string root_of(std::string value) const {
    for (auto found = parents_.find(value); found != parents_.end(); found = parents_.find(value))
      value = found->second;
    return value;
  }

  /// Values with the same bytes as `changed`, made before node `index` changes that, which are read
  /// after it.
  std::vector<std::string> others_read(const std::string& changed, std::size_t index) const {
    const std::string root = root_of(changed);
    std::vector<std::string> others;
    for (const auto& [value, last] : last_reads_) {
      const auto maker = makers_.find(value);
      const bool is_older = maker == makers_.end() || maker->second < index;
      if (last > index && is_older && value != changed && root_of(value) == root)
        others.push_back(value);
    }
    return others;
  }

  /// The node that made the value; none: an input.
  std::optional<std::size_t> maker_of(const std::string& value) const {
    const auto maker = makers_.find(value);
    return maker == makers_.end() ? std::nullopt : std::optional(maker->second);
  }

 private:
  void join(const std::string& a, const std::string& b) {
    const std::string from = root_of(b), to = root_of(a);
    if (from != to) parents_[from] = to;
  }

  std::map<std::string, std::string> parents_;
  std::map<std::string, std::size_t> makers_, last_reads_;  // indices of nodes
};

// The operator that replaces a part of a value, for an operator that returns such a part.
std::optional<std::pair<const char*, const char*>> scatter_of(const GraphNode& part) {
  const std::string form = part.op + "." + part.overload;
  if (form == "aten::slice.Tensor") return std::pair("aten::slice_scatter", "");
  if (form == "aten::select.int") return std::pair("aten::select_scatter", "");
  return std::nullopt;
}

class Rewriter {
 public:
  explicit Rewriter(const ExportedProgram& program) : program_(program), aliases_(program) {
    for (const GraphInput& input : program.inputs()) {
      if (input.source == GraphSource::kBuffer && input.target.ends_with("num_batches_tracked"))
        counters_.insert(input.name);
      fixed_.insert(aliases_.root_of(input.name));
    }
    for (std::size_t i = 0; i < program.nodes().size(); ++i) rewrite(program.nodes()[i], i);
    for (const std::string& output : program.outputs()) graph_.outputs.push_back(renamed(output));
  }
  FunctionalGraph take() { return std::move(graph_); }

 private:
  std::string renamed(const std::string& name) const {
    const auto found = names_.find(name);
    return found == names_.end() ? name : found->second;
  }

  void rename(GraphNode& node) const {
    for (auto& [name, argument] : node.arguments) {
      if (auto* tensor = std::get_if<GraphTensor>(&argument)) tensor->name = renamed(tensor->name);
      if (auto* tensors = std::get_if<GraphTensors>(&argument))
        for (GraphTensor& each : *tensors) each.name = renamed(each.name);
    }
  }

  // Memory that PyTorch leaves unwritten is zeros here; models write to it before they read it.
  static GraphNode without_unwritten_memory(GraphNode node) {
    const std::string form = node.op + "." + node.overload;
    if (form == "aten::new_empty.") node.op = "aten::new_zeros";
    if (form == "aten::empty_like.") node.op = "aten::zeros_like";
    if (form != "aten::empty.memory_format") return node;
    node.op = "aten::zeros";
    node.overload = "";
    std::erase_if(node.arguments, [](const auto& each) { return each.first == "memory_format"; });
    return node;
  }

  void rewrite(const GraphNode& given, std::size_t index) {
    const GraphNode node = without_unwritten_memory(given);
    if (const auto refusal = refusal_of(node)) throw refuse(node, refusal->what, refusal->fix);
    const std::string changed = changed_argument(node);
    if (changed.empty()) {
      graph_.nodes.push_back(node);
      return rename(graph_.nodes.back());
    }
    const GraphArgument* argument = find_argument(node, changed);
    const auto* tensor = argument ? std::get_if<GraphTensor>(argument) : nullptr;
    if (changed != "self" || !tensor)
      throw refuse(node, "it writes to its argument " + changed, "return a new value");
    rewrite_change(node, tensor->name, index);
  }

  void rewrite_change(GraphNode node, const std::string& changed, std::size_t index) {
    if (counters_.contains(changed)) {
      for (const std::string& output : node.outputs) names_[output] = changed;
      return;
    }
    if (fixed_.contains(aliases_.root_of(changed)))
      throw refuse(node, "it changes an input or a weight of the model", "return a new value");
    const std::vector<std::size_t> parts = parts_around(changed);
    for (const std::string& other : aliases_.others_read(changed, index))
      if (std::ranges::none_of(parts, [&](std::size_t part) { return whole_of(part) == other; }))
        throw refuse(node, "it changes a value that shares its bytes with another one",
                     "return a new value instead of writing to part of one");
    rename(node);
    node = node.op == "aten::copy_" ? without_copy(node) : functional_form(node);
    const std::string last = renamed(changed);
    for (auto& [from, to] : names_)
      if (to == last) to = node.outputs.at(0);
    names_[changed] = node.outputs.at(0);
    std::string value = node.outputs.at(0);
    graph_.nodes.push_back(std::move(node));
    for (const std::size_t part : parts) value = replace_part(part, value);
  }

  const std::string& whole_of(std::size_t part) const {
    return std::get<GraphTensor>(*find_argument(program_.nodes()[part], "self")).name;
  }

  // The nodes that cut a value out of larger ones, from the innermost on, as far as parts can be
  // replaced.
  std::vector<std::size_t> parts_around(std::string value) const {
    std::vector<std::size_t> parts;
    while (const std::optional<std::size_t> maker = aliases_.maker_of(value)) {
      const GraphNode& node = program_.nodes()[*maker];
      const GraphArgument* whole = find_argument(node, "self");
      if (!scatter_of(node) || !whole || !std::holds_alternative<GraphTensor>(*whole)) break;
      parts.push_back(*maker);
      value = whole_of(*maker);
    }
    return parts;
  }

  // Adds a node that puts the new value of a part into the whole; returns the whole's new name.
  std::string replace_part(std::size_t part, const std::string& value) {
    GraphNode node = program_.nodes()[part];
    const std::string whole = whole_of(part);
    const auto [op, overload] = *scatter_of(node);
    node.op = op;
    node.overload = overload;
    rename(node);
    node.arguments.insert(node.arguments.begin() + 1, {"src", GraphTensor{value}});
    const std::string name = whole + "_with_part_" + std::to_string(graph_.nodes.size());
    node.outputs = {name};
    graph_.new_values[name] = whole;
    const std::string last = renamed(whole);
    for (auto& [from, to] : names_)
      if (to == last) to = name;
    names_[whole] = name;
    graph_.nodes.push_back(std::move(node));
    return name;
  }

  // The source, in the type and shape of the value that it is copied to: aten::copy has no
  // derivative.
  GraphNode without_copy(const GraphNode& node) {
    const auto* to = std::get_if<GraphTensor>(find_argument(node, "self"));
    const GraphArgument* source = find_argument(node, "src");
    const auto* from = source ? std::get_if<GraphTensor>(source) : nullptr;
    if (!from) throw refuse(node, "a copy without a source", "copy a tensor");
    GraphNode typed = node, expanded = node;
    const std::string name = from->name + "_typed_" + std::to_string(graph_.nodes.size());
    typed.op = "aten::type_as";
    typed.arguments = {{"self", *from}, {"other", *to}};
    typed.outputs = {name};
    const auto made = graph_.new_values.find(from->name);
    graph_.new_values[name] = made == graph_.new_values.end() ? from->name : made->second;
    graph_.nodes.push_back(std::move(typed));
    expanded.op = "aten::expand_as";
    expanded.arguments = {{"self", GraphTensor{name}}, {"other", *to}};
    return expanded;
  }

  static GraphNode functional_form(const GraphNode& node) {
    GraphNode functional = without_change(node);
    rename_arguments(functional, node);
    return functional;
  }

  // The two forms may name an argument differently.
  static void rename_arguments(GraphNode& functional, const GraphNode& node) {
    const auto from = find_operator(node.op, node.overload);
    const auto to = find_operator(functional.op, functional.overload);
    if (!to || functional.op == node.op ||
        to->schema().arguments().size() != from->schema().arguments().size())
      throw refuse(node, "there is no form of it that changes nothing", "return a new value");
    for (auto& [name, argument] : functional.arguments)
      if (const std::optional<int> place = from->schema().argumentIndexWithName(name))
        name = to->schema().arguments()[static_cast<std::size_t>(*place)].name();
  }

  const ExportedProgram& program_;
  Aliases aliases_;
  FunctionalGraph graph_;
  std::map<std::string, std::string> names_;  // of values that were changed: the newest
  std::set<std::string> counters_, fixed_;
};

}  // namespace

FunctionalGraph functional_graph(const ExportedProgram& program) {
  return Rewriter(program).take();
}

}  // namespace strata
