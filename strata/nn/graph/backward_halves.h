/// Runs the backward of a layer in two halves: first the gradients of the inputs, which the stage
/// before waits for, later those of the weights.
///
/// Strata's own operators leave their work on weights to DeferredGradients. In a graph of PyTorch's
/// operators, a node that computes the gradients of both an input and a matrix runs twice, each
/// time for one of them. Whatever does not divide runs whole in the first half: gradients of
/// vectors such as gains and biases of norms, which cost little, and operators outside PyTorch. A
/// layer none of whose inputs has a gradient runs whole in the second half, and one in which an
/// operator outside PyTorch and one of PyTorch's share a weight runs whole in the first. The
/// gradient of a weight is added by one half alone, in the order of a whole backward, so its bits
/// are the same.
///
/// Source   Zero Bubble Pipeline Parallelism (Qi et al., ICLR 2024).
/// Threads  those of a graph's rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <span>
#include <vector>

#include "strata/nn/graph/deferred_gradients.h"

namespace strata {

/// What the second half needs: nodes, the gradients that arrive there, and work of own operators.
/// The nodes own the tensors that they saved.
struct WeightHalf {
  torch::autograd::edge_list roots;
  std::vector<at::Tensor> gradients;
  std::shared_ptr<DeferredGradients> deferred = std::make_shared<DeferredGradients>();
};

/// Runs the first half from `roots`. Returns the gradient of each input: undefined for one that
/// requires none or that the graph does not reach.
std::vector<at::Tensor> run_input_half(const torch::autograd::edge_list& roots,
                                       std::vector<at::Tensor> output_gradients,
                                       std::span<const at::Tensor> inputs, WeightHalf& rest);

/// Runs the second half.
void run_weight_half(WeightHalf half);

}  // namespace strata
