// A node is "shared" if its gradient reaches an input, and an edge from a shared node to a node
// that reaches weights alone begins a "branch". The first half computes no branch; the engine gives
// it the gradients that arrive at the shared nodes with branches. Then the other edges of these
// nodes are cut, which frees the rest of the graph, and the second half runs the branches from
// there.
#include "strata/nn/graph/backward_halves.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

namespace strata {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using Leaves = std::vector<AccumulateGrad*>;

// Nodes that PyTorch generates compute only the gradients that are wanted. Others may compute all.
bool computes_what_is_wanted(const Node& node) {
  return std::string_view(typeid(node).name()).find("generated") != std::string_view::npos;
}

// An edge to a part of the graph that reaches only weights.
struct Branch {
  Node* shared = nullptr;  // the node before it; null: the branch begins at a root
  std::size_t edge = 0;    // of that node
  Leaves weights;
};

class Graph {
 public:
  Graph(const edge_list& roots, std::span<const at::Tensor> inputs) {
    for (const at::Tensor& input : inputs)
      if (input.requires_grad())
        inputs_.insert(torch::autograd::impl::gradient_edge(input).function.get());
    for (std::size_t i = 0; i < roots.size(); ++i) {
      Node* const node = roots[i].function.get();
      if (!node) continue;
      visit(node);
      if (!reaches_input_.at(node)) add_branch(nullptr, i, node);
    }
    choose_early();
  }

  bool reaches_input(Node* node) const { return node && reaches_input_.at(node); }
  bool any_input() const {
    return std::ranges::any_of(reaches_input_, [](const auto& it) { return it.second; });
  }
  /// The weights whose gradients the first half adds.
  const Leaves& early() const { return early_; }
  /// The branches of the second half.
  const std::vector<Branch>& late() const { return late_; }

 private:
  // Depth first, without recursion: graphs may be deep.
  void visit(Node* root) {
    std::vector<std::pair<Node*, std::size_t>> path;
    const auto enter = [&](Node* node) {
      if (reaches_input_.emplace(node, inputs_.contains(node)).second) path.emplace_back(node, 0);
    };
    enter(root);
    while (!path.empty()) {
      auto& [node, edge] = path.back();
      if (edge < node->num_outputs()) {
        if (Node* const next = node->next_edge(edge++).function.get()) enter(next);
        continue;
      }
      Node* const done = node;
      path.pop_back();
      bool reaches = inputs_.contains(done);
      for (const Edge& next : done->next_edges())
        reaches = reaches || (next.is_valid() && reaches_input_.at(next.function.get()));
      reaches_input_[done] = reaches;
      if (!reaches || inputs_.contains(done)) continue;
      for (std::size_t i = 0; i < done->num_outputs(); ++i) {
        Node* const next = done->next_edge(i).function.get();
        if (next && !reaches_input_.at(next)) add_branch(done, i, next);
      }
    }
  }

  void add_branch(Node* shared, std::size_t edge, Node* first) {
    Branch branch{.shared = shared, .edge = edge, .weights = {}};
    std::vector<Node*> open{first};
    std::unordered_set<Node*> seen{first};
    while (!open.empty()) {
      Node* const node = open.back();
      open.pop_back();
      if (auto* const leaf = dynamic_cast<AccumulateGrad*>(node)) branch.weights.push_back(leaf);
      for (const Edge& next : node->next_edges())
        if (next.is_valid() && seen.insert(next.function.get()).second)
          open.push_back(next.function.get());
    }
    if (!branch.weights.empty()) branches_.push_back(std::move(branch));
  }

  // Whether a shared node may run again for its branches, and gains by it.
  bool divides(const Node* shared) const {
    if (!shared) return true;
    return computes_what_is_wanted(*shared) &&
           std::ranges::any_of(branches_, [&](const Branch& branch) {
             return branch.shared == shared && std::ranges::any_of(branch.weights, is_matrix);
           });
  }

  static bool is_matrix(const AccumulateGrad* leaf) { return leaf->variable.dim() >= 2; }

  // A weight that one branch needs early is early in all of them, with every other weight of these
  // branches: the engine adds up what all paths bring to a leaf.
  void choose_early() {
    std::unordered_set<AccumulateGrad*> early;
    for (const Branch& branch : branches_)
      if (!divides(branch.shared)) early.insert(branch.weights.begin(), branch.weights.end());
    const auto is_early = [&](AccumulateGrad* leaf) { return early.contains(leaf); };
    for (std::size_t before = early.size() + 1; before != early.size();) {
      before = early.size();
      for (const Branch& branch : branches_)
        if (std::ranges::any_of(branch.weights, is_early))
          early.insert(branch.weights.begin(), branch.weights.end());
    }
    for (Branch& branch : branches_)
      if (!std::ranges::any_of(branch.weights, is_early)) late_.push_back(std::move(branch));
    early_.assign(early.begin(), early.end());
  }

  std::unordered_set<Node*> inputs_;
  std::unordered_map<Node*, bool> reaches_input_;
  std::vector<Branch> branches_;
  Leaves early_;
  std::vector<Branch> late_;
};

// The gradient as autograd leaves it at an input.
at::Tensor at_input(at::Tensor gradient, const at::Tensor& input) {
  if (!gradient.defined() || torch::autograd::utils::obeys_layout_contract(gradient, input))
    return gradient;
  return torch::autograd::utils::clone_obey_contract(gradient, input);
}

// Cuts every edge of the shared nodes that begins no branch of the second half.
void cut_other_edges(const std::vector<Node*>& shared, const std::vector<Branch>& late) {
  for (Node* const node : shared) {
    std::vector<bool> kept(node->num_outputs());
    for (const Branch& branch : late)
      if (branch.shared == node) kept[branch.edge] = true;
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (!kept[i]) node->next_edges()[i] = {};
  }
}

}  // namespace

std::vector<at::Tensor> run_input_half(const edge_list& roots,
                                       std::vector<at::Tensor> output_gradients,
                                       std::span<const at::Tensor> inputs, WeightHalf& rest) {
  const Graph graph(roots, inputs);
  std::vector<at::Tensor> gradients(inputs.size());
  for (const Branch& branch : graph.late()) {
    if (branch.shared) continue;
    rest.roots.push_back(roots[branch.edge]);
    rest.gradients.push_back(output_gradients[branch.edge]);
  }
  if (!graph.any_input() && graph.early().empty()) return gradients;

  // The engine gives back the gradients at these edges: inputs, early weights, shared nodes.
  edge_list wanted;
  std::vector<std::size_t> input_of;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    const Edge edge = torch::autograd::impl::gradient_edge(inputs[i]);
    wanted.push_back(edge);
    input_of.push_back(i);
  }
  for (AccumulateGrad* const leaf : graph.early()) wanted.emplace_back(leaf->getptr(), 0);
  const std::size_t first_shared = wanted.size();
  std::vector<Node*> shared;
  for (const Branch& branch : graph.late()) {
    if (!branch.shared || std::ranges::find(shared, branch.shared) != shared.end()) continue;
    shared.push_back(branch.shared);
    for (std::uint32_t i = 0; i < branch.shared->num_inputs(); ++i)
      wanted.emplace_back(branch.shared->getptr(), i);
  }
  std::vector<at::Tensor> found;
  {
    const DeferScope scope(rest.deferred);
    found = Engine::get_default_engine().execute(roots, std::move(output_gradients),
                                                 /*keep_graph=*/true, /*create_graph=*/false,
                                                 /*accumulate_grad=*/false, wanted);
  }
  const at::NoGradGuard no_grad;
  for (std::size_t k = 0; k < input_of.size(); ++k)
    gradients[input_of[k]] = at_input(std::move(found[k]), inputs[input_of[k]]);
  for (std::size_t k = input_of.size(); k < first_shared; ++k)
    if (found[k].defined())
      graph.early()[k - input_of.size()]->variable.mutable_grad() += found[k];
  for (std::size_t k = first_shared; k < wanted.size(); ++k) {
    if (!found[k].defined()) continue;
    rest.roots.push_back(wanted[k]);
    rest.gradients.push_back(std::move(found[k]));
  }
  cut_other_edges(shared, graph.late());
  return gradients;
}

void run_weight_half(WeightHalf half) {
  half.deferred->run();
  if (half.roots.empty()) return;
  Engine::get_default_engine().execute(half.roots, std::move(half.gradients), /*keep_graph=*/false,
                                       /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace strata
