/// Runs one layer forward and backward as an autograd graph of its own.
///
/// Forward detaches at the layer's boundary; backward is one call per layer. That is what makes
/// recompute and fetch per layer, and naming the first layer that differs, possible.
///
/// Cost  about 30 us a layer and micro-batch.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <span>
#include <vector>

#include "strata/nn/layer.h"

namespace strata {

/// What a layer keeps of a forward until its backward.
struct LayerGraph {
  std::vector<at::Tensor> inputs;    ///< leaves, as given to forward
  torch::autograd::edge_list roots;  ///< of the outputs; empty until a graph was made
};

/// Makes the leaves that a graph starts from. Integer inputs carry no gradient, nor do those that
/// `differentiable`, if it isn't empty, says so of.
std::vector<at::Tensor> make_inputs(std::vector<at::Tensor> values,
                                    const std::vector<bool>& differentiable = {});

/// Forward with a graph: fills graph.roots from graph.inputs. Returns the outputs, detached.
std::vector<at::Tensor> forward_with_graph(const Layer& layer, const ForwardContext& context,
                                           std::span<const at::Tensor> weights, LayerGraph& graph);

/// Forward that keeps nothing.
std::vector<at::Tensor> forward_without_graph(const Layer& layer, const ForwardContext& context,
                                              std::span<const at::Tensor> weights,
                                              std::span<const at::Tensor> inputs);

/// Backward and end of the graph: adds the weights' gradients in place, returns those of the inputs
/// (undefined for inputs without one, zeros where the layer ignored one).
std::vector<at::Tensor> backward(LayerGraph graph, std::vector<at::Tensor> output_gradients);

}  // namespace strata
