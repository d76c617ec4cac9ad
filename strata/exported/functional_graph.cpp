#include "strata/exported/functional_graph.h"

#include <algorithm>
#include <set>

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

  /// Whether another value with the same bytes, made before node `index` changes this one, is read
  /// after it.
  bool others_are_read(const std::string& changed, std::size_t index) const {
    const std::string root = root_of(changed);
    return std::ranges::any_of(last_reads_, [&](const auto& entry) {
      const auto& [value, last] = entry;
      const auto maker = makers_.find(value);
      const bool is_older = maker == makers_.end() || maker->second < index;
      return last > index && is_older && value != changed && root_of(value) == root;
    });
  }

 private:
  void join(const std::string& a, const std::string& b) {
    const std::string from = root_of(b), to = root_of(a);
    if (from != to) parents_[from] = to;
  }

  std::map<std::string, std::string> parents_;
  std::map<std::string, std::size_t> makers_, last_reads_;  // indices of nodes
};

class Rewriter {
 public:
  explicit Rewriter(const ExportedProgram& program) : aliases_(program) {
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
    if (aliases_.others_are_read(changed, index))
      throw refuse(node, "it changes a value that shares its bytes with another one",
                   "return a new value instead of writing to part of one");
    rename(node);
    GraphNode functional = without_change(node);
    rename_arguments(functional, node);
    node = std::move(functional);
    const std::string last = renamed(changed);
    for (auto& [from, to] : names_)
      if (to == last) to = node.outputs.at(0);
    names_[changed] = node.outputs.at(0);
    graph_.nodes.push_back(std::move(node));
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
