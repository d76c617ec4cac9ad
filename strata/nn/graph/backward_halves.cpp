// A node is "shared" if its gradient reaches an input, and an edge from a shared node to a node
// that reaches weights alone begins a "branch". Some branches belong to the first half, the others
// to the second. In the first half the engine returns the gradients that arrive at the shared nodes
// of the second's branches. Then all other edges of these nodes are cut, which frees the rest of
// the graph, and the second half runs the branches from there.
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

// Nodes that PyTorch generates compute only the gradients that are wanted. Others may compute all,
// or, as own operators do, add to the leaves of weights themselves.
bool is_generated(const Node& node) {
  return std::string_view(typeid(node).name()).starts_with("N5torch8autograd9generated");
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
    choose_weights();
  }

  bool reaches_any_input() const {
    return std::ranges::any_of(reaches_input_, [](const auto& it) { return it.second; });
  }
  /// Whether a leaf gets gradients from an operator that may add them itself and from others: their
  /// order would depend on the halves.
  bool mixes() const {
    return std::ranges::any_of(sources_, [&](const auto& it) {
      return is_weight(it.first) && it.second.generated > 0 && it.second.others > 0;
    });
  }
  /// The weights whose gradients the first half adds.
  const Leaves& first_half_weights() const { return first_half_weights_; }
  const std::vector<Branch>& second_half_branches() const { return second_half_branches_; }

 private:
  // The edges that end at a node, by the kind of the node where they begin.
  struct Sources {
    int generated = 0, others = 0;
  };

  bool is_weight(Node* node) const {
    return !inputs_.contains(node) && dynamic_cast<AccumulateGrad*>(node) != nullptr;
  }

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
      for (const Edge& next : done->next_edges()) {
        if (!next.is_valid()) continue;
        reaches = reaches || reaches_input_.at(next.function.get());
        Sources& sources = sources_[next.function.get()];
        ++(is_generated(*done) ? sources.generated : sources.others);
      }
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
    return is_generated(*shared) && std::ranges::any_of(branches_, [&](const Branch& branch) {
             return branch.shared == shared && std::ranges::any_of(branch.weights, is_matrix);
           });
  }

  static bool is_matrix(const AccumulateGrad* leaf) { return leaf->variable.dim() >= 2; }

  // A weight of one branch in the first half is there with all its branches, and with every other
  // weight of these branches: the engine adds up what all paths bring to a leaf.
  void choose_weights() {
    std::unordered_set<AccumulateGrad*> first;
    for (const Branch& branch : branches_)
      if (!divides(branch.shared)) first.insert(branch.weights.begin(), branch.weights.end());
    const auto is_first = [&](AccumulateGrad* leaf) { return first.contains(leaf); };
    for (std::size_t before = first.size() + 1; before != first.size();) {
      before = first.size();
      for (const Branch& branch : branches_)
        if (std::ranges::any_of(branch.weights, is_first))
          first.insert(branch.weights.begin(), branch.weights.end());
    }
    for (Branch& branch : branches_)
      if (!std::ranges::any_of(branch.weights, is_first))
        second_half_branches_.push_back(std::move(branch));
    first_half_weights_.assign(first.begin(), first.end());
  }

  std::unordered_set<Node*> inputs_;
  std::unordered_map<Node*, bool> reaches_input_;
  std::unordered_map<Node*, Sources> sources_;
  std::vector<Branch> branches_;
  Leaves first_half_weights_;
  std::vector<Branch> second_half_branches_;
};

// The gradient as autograd leaves it at an input.
at::Tensor at_input(at::Tensor gradient, const at::Tensor& input) {
  if (!gradient.defined() || torch::autograd::utils::obeys_layout_contract(gradient, input))
    return gradient;
  return torch::autograd::utils::clone_obey_contract(gradient, input);
}

// Cuts every edge of the shared nodes that begins no branch of the second half.
void cut_other_edges(const std::vector<Node*>& shared, const std::vector<Branch>& branches) {
  for (Node* const node : shared) {
    std::vector<bool> kept(node->num_outputs());
    for (const Branch& branch : branches)
      if (branch.shared == node) kept[branch.edge] = true;
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (!kept[i]) node->next_edges()[i] = {};
  }
}

// A backward that is not divided.
std::vector<at::Tensor> run_whole(const edge_list& roots, std::vector<at::Tensor> output_gradients,
                                  std::span<const at::Tensor> inputs) {
  Engine::get_default_engine().execute(roots, std::move(output_gradients), /*keep_graph=*/false,
                                       /*create_graph=*/false, /*accumulate_grad=*/true);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& input : inputs) gradients.push_back(std::move(input.mutable_grad()));
  return gradients;
}

}  // namespace

std::vector<at::Tensor> run_input_half(const edge_list& roots,
                                       std::vector<at::Tensor> output_gradients,
                                       std::span<const at::Tensor> inputs, WeightHalf& rest) {
  const Graph graph(roots, inputs);
  if (graph.mixes()) return run_whole(roots, std::move(output_gradients), inputs);
  std::vector<at::Tensor> gradients(inputs.size());
  for (const Branch& branch : graph.second_half_branches()) {
    if (branch.shared) continue;
    rest.roots.push_back(roots[branch.edge]);
    rest.gradients.push_back(output_gradients[branch.edge]);
  }
  if (!graph.reaches_any_input()) return gradients;

  // The engine gives back the gradients at these edges: inputs, weights, shared nodes.
  edge_list wanted;
  std::vector<std::size_t> input_of;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    wanted.push_back(torch::autograd::impl::gradient_edge(inputs[i]));
    input_of.push_back(i);
  }
  const Leaves& weights = graph.first_half_weights();
  for (AccumulateGrad* const leaf : weights) wanted.emplace_back(leaf->getptr(), 0);
  const std::size_t first_shared = wanted.size();
  std::vector<Node*> shared;
  for (const Branch& branch : graph.second_half_branches()) {
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
    if (found[k].defined()) weights[k - input_of.size()]->variable.mutable_grad() += found[k];
  for (std::size_t k = first_shared; k < wanted.size(); ++k) {
    if (!found[k].defined()) continue;
    rest.roots.push_back(wanted[k]);
    rest.gradients.push_back(std::move(found[k]));
  }
  cut_other_edges(shared, graph.second_half_branches());
  return gradients;
}

void run_weight_half(WeightHalf half) {
  half.deferred->run();
  if (half.roots.empty()) return;
  Engine::get_default_engine().execute(half.roots, std::move(half.gradients), /*keep_graph=*/false,
                                       /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace strata
