// Outputs are returned detached and only the edges of their graph are kept, so a value that was
// sent or consumed can be freed before its layer's backward.
#include "strata/pipeline/layer_graph.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "strata/device/thread_pool.h"

namespace strata {
namespace {

int aten_threads(bool all) { return all ? thread_pool().threads() : at::get_num_threads(); }

}  // namespace

std::vector<at::Tensor> make_inputs(std::vector<at::Tensor> values,
                                    const std::vector<bool>& differentiable) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool has_gradient = differentiable.empty() || differentiable[i];
    if (values[i].is_floating_point()) values[i] = values[i].detach().requires_grad_(has_gradient);
  }
  return values;
}

std::vector<at::Tensor> forward_with_graph(const Layer& layer, const ForwardContext& context,
                                           std::span<const at::Tensor> weights, LayerGraph& graph) {
  const at::AutoGradMode grad(true);
  const AtenThreadsScope threads(aten_threads(graph.aten_threads = layer.uses_aten_threads()));
  std::vector<at::Tensor> outputs = layer.forward(context, weights, graph.inputs);
  for (at::Tensor& output : outputs) {
    // Keeps the edge only: the receiver of the output decides how long its bytes live.
    graph.roots.push_back(torch::autograd::impl::gradient_edge(output));
    output = output.detach();
  }
  return outputs;
}

std::vector<at::Tensor> forward_without_graph(const Layer& layer, const ForwardContext& context,
                                              std::span<const at::Tensor> weights,
                                              std::span<const at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  const AtenThreadsScope threads(aten_threads(layer.uses_aten_threads()));
  return layer.forward(context, weights, inputs);
}

std::vector<at::Tensor> backward(LayerGraph graph, std::vector<at::Tensor> output_gradients) {
  const AtenThreadsScope threads(aten_threads(graph.aten_threads));
  torch::autograd::edge_list roots = std::move(graph.roots);
  torch::autograd::Engine::get_default_engine().execute(
      roots, std::move(output_gradients), /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/true);
  std::vector<at::Tensor> gradients;
  for (at::Tensor& input : graph.inputs) {
    if (!input.requires_grad()) {
      gradients.emplace_back();
    } else if (input.grad().defined()) {
      gradients.push_back(std::move(input.mutable_grad()));
    } else {
      gradients.push_back(at::zeros_like(input));
    }
  }
  return gradients;
}

std::vector<at::Tensor> backward_to_inputs(LayerGraph& graph,
                                           std::vector<at::Tensor> output_gradients) {
  const AtenThreadsScope threads(aten_threads(graph.aten_threads));
  const torch::autograd::edge_list roots = std::move(graph.roots);
  std::vector<at::Tensor> gradients =
      run_input_half(roots, std::move(output_gradients), graph.inputs, graph.weight_half);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (!gradients[i].defined() && graph.inputs[i].requires_grad())
      gradients[i] = at::zeros_like(graph.inputs[i]);
  return gradients;
}

void backward_to_weights(LayerGraph graph) {
  const AtenThreadsScope threads(aten_threads(graph.aten_threads));
  run_weight_half(std::move(graph.weight_half));
}

}  // namespace strata
