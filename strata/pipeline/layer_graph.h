/// Runs one layer forward and backward as a separate autograd graph.
///
/// Forward detaches at the layer's boundary; backward is one call per layer. This allows recompute
/// and fetch per layer, and naming the first layer that differs.
///
/// Cost  about 30 us per layer and micro-batch.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <span>
#include <vector>

#include "strata/nn/graph/backward_halves.h"
#include "strata/nn/graph/layer.h"

namespace strata {

/// What a layer keeps of a forward until its backward.
struct LayerGraph {
  std::vector<at::Tensor> inputs;    ///< leaves, as passed to forward
  torch::autograd::edge_list roots;  ///< edges of the outputs; empty without a graph
  bool aten_threads = false;         ///< Layer::uses_aten_threads()
  WeightHalf weight_half;            ///< between backward_to_inputs() and backward_to_weights()
};

/// Makes the leaves of a graph. Integer inputs have no gradient, nor do those for which a non-empty
/// `differentiable` is false.
std::vector<at::Tensor> make_inputs(std::vector<at::Tensor> values,
                                    const std::vector<bool>& differentiable = {});

/// Forward with a graph: fills graph.roots from graph.inputs. Returns the outputs, detached.
std::vector<at::Tensor> forward_with_graph(const Layer& layer, const ForwardContext& context,
                                           std::span<const at::Tensor> weights, LayerGraph& graph);

/// Forward without a graph.
std::vector<at::Tensor> forward_without_graph(const Layer& layer, const ForwardContext& context,
                                              std::span<const at::Tensor> weights,
                                              std::span<const at::Tensor> inputs);

/// Backward and end of the graph: adds the weights' gradients in place, returns those of the inputs
/// (undefined for inputs without one, zeros if the layer ignored one).
std::vector<at::Tensor> backward(LayerGraph graph, std::vector<at::Tensor> output_gradients);

/// backward() in two halves: returns the inputs' gradients, and keeps what the second half needs.
std::vector<at::Tensor> backward_to_inputs(LayerGraph& graph,
                                           std::vector<at::Tensor> output_gradients);
/// The second half: adds the weights' gradients. End of the graph.
void backward_to_weights(LayerGraph graph);

}  // namespace strata
