#include "strata/exported/functional_graph.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <set>

#include "strata/base/error_source.h"

namespace strata {
namespace {

constexpr ErrorSource kGraphErrors{"exported.read"};

// Operators that draw numbers, but dropout, whose mask layers draw by sample.
const std::set<std::string> kRandom = {"aten::alpha_dropout",   "aten::feature_alpha_dropout",
                                       "aten::feature_dropout", "aten::native_dropout",
                                       "aten::bernoulli",       "aten::multinomial",
                                       "aten::normal",          "aten::rand",
                                       "aten::rand_like",       "aten::randint",
                                       "aten::randint_like",    "aten::randn",
                                       "aten::randn_like",      "aten::randperm",
                                       "aten::rrelu",           "aten::uniform",
                                       "aten::exponential",     "aten::random",
                                       "aten::cauchy"};

// Operators that do not check their arguments, because only libtorch calls them, and from_file,
// which reads files: the graph may come from anywhere.
bool is_unsafe(const std::string& op) {
  static const std::set<std::string> kSafe = {"aten::_to_copy", "aten::_weight_norm"};
  if (op == "aten::from_file") return true;
  return op.starts_with("aten::_") && !op.starts_with("aten::__") && !kSafe.contains(op);
}

UserError refuse(const GraphNode& node, const std::string& what, const std::string& fix) {
  return kGraphErrors.user(node.line.empty() ? node.module : node.line, what,
                           "operators that only return values", node.op, fix);
}

const c10::FunctionSchema* schema_of(const std::string& op, const std::string& overload) {
  const auto found = c10::Dispatcher::singleton().findSchema({op, overload});
  return found ? &found->schema() : nullptr;
}

bool returns_view(const GraphNode& node) {
  const c10::FunctionSchema* schema = schema_of(node.op, node.overload);
  if (!schema) return false;
  for (const c10::Argument& result : schema->returns())
    if (result.alias_info()) return true;
  return false;
}

// Which values share their bytes, and when each is read for the last time.
class Aliases {
 public:
  explicit Aliases(const ExportedProgram& program) {
    const std::vector<GraphNode>& nodes = program.nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const bool shares = returns_view(nodes[i]);
      std::string root;
      for_values(nodes[i], [&](const std::string& value) {
        last_reads_[value] = i;
        if (shares && root.empty()) root = root_of(value);
      });
      for (const std::string& output : nodes[i].outputs) {
        makers_[output] = i;
        if (shares) roots_[output] = root;
      }
    }
    for (const std::string& output : program.outputs()) last_reads_[output] = nodes.size();
  }

  /// The value whose bytes this one has.
  std::string root_of(const std::string& value) const {
    const auto found = roots_.find(value);
    return found == roots_.end() ? value : found->second;
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
  std::map<std::string, std::string> roots_;
  std::map<std::string, std::size_t> makers_, last_reads_;  // indices of nodes
};

class Rewriter {
 public:
  explicit Rewriter(const ExportedProgram& program) : aliases_(program) {
    for (const GraphInput& input : program.inputs()) {
      if (input.source == GraphSource::kBuffer) buffers_.insert(input.name);
      fixed_.insert(input.name);
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

  void rewrite(GraphNode node, std::size_t index) {
    const GraphNode before = node;
    rename(node);
    const bool in_place = node.op.ends_with("_") && !node.op.ends_with("__");
    const std::string functional = in_place ? node.op.substr(0, node.op.size() - 1) : node.op;
    if (is_unsafe(functional))
      throw refuse(node, "a file may not call this operator, which checks too little",
                   "export the model without decompositions");
    if (kRandom.contains(functional))
      throw refuse(node, "its random numbers would depend on the mesh",
                   "use dropout, or leave it out");
    if (!in_place) {
      graph_.nodes.push_back(std::move(node));
      return;
    }
    const std::string changed = std::get<GraphTensor>(before.arguments.at(0).second).name;
    if (buffers_.contains(changed) && is_count(changed)) {
      for (const std::string& output : node.outputs) names_[output] = changed;
      return;
    }
    if (fixed_.contains(aliases_.root_of(changed)))
      throw refuse(node, "it changes an input or a weight of the model", "return a new value");
    if (aliases_.others_are_read(changed, index))
      throw refuse(node, "it changes a value that shares its bytes with another one",
                   "return a new value instead of writing to part of one");
    rename_arguments(node, functional);
    node.op = functional;
    const std::string last = renamed(changed);
    for (auto& [from, to] : names_)
      if (to == last) to = node.outputs.at(0);
    names_[changed] = node.outputs.at(0);
    graph_.nodes.push_back(std::move(node));
  }

  // The two forms may name an argument differently.
  static void rename_arguments(GraphNode& node, const std::string& functional) {
    const c10::FunctionSchema* to = schema_of(functional, node.overload);
    const c10::FunctionSchema* from = schema_of(node.op, node.overload);
    if (!to || !from || to->arguments().size() != from->arguments().size())
      throw refuse(node, "there is no form of it that changes nothing", "return a new value");
    for (auto& [name, argument] : node.arguments)
      if (const std::optional<int> place = from->argumentIndexWithName(name))
        name = to->arguments()[static_cast<std::size_t>(*place)].name();
  }

  // num_batches_tracked, which no value of the model depends on.
  static bool is_count(const std::string& name) { return name.ends_with("num_batches_tracked"); }

  Aliases aliases_;
  FunctionalGraph graph_;
  std::map<std::string, std::string> names_;  // of values that were changed: the newest
  std::set<std::string> buffers_, fixed_;
};

}  // namespace

FunctionalGraph functional_graph(const ExportedProgram& program) {
  return Rewriter(program).take();
}

const GraphArgument* find_argument(const GraphNode& node, const std::string& name) {
  for (const auto& [own, argument] : node.arguments)
    if (own == name) return &argument;
  return nullptr;
}

}  // namespace strata
