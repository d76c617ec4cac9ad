// The order of reads and frees decides what is counted: the terms are those of LayerCost
// (layout/costs.h), where the layers that read inputs, outputs and their gradients count them.
#include "strata/nn/graph/measured_bytes.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "strata/comm/lone_context.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/device/thread_pool.h"
#include "strata/nn/graph/backward_halves.h"
#include "strata/nn/graph/initialise.h"

namespace strata {
namespace {

// Weights have the precision of the values, gradients are fp32.
std::vector<at::Tensor> leaves(const Layer& layer, std::span<const TensorSpec> inputs) {
  const auto value = std::find_if(inputs.begin(), inputs.end(), [](const TensorSpec& input) {
    return c10::isFloatingType(input.dtype);
  });
  const at::ScalarType dtype = value == inputs.end() ? at::kFloat : value->dtype;
  std::vector<at::Tensor> weights;
  for (const WeightSpec& spec : layer.weights()) {
    const at::Tensor weight = at::zeros(spec.shape, host_options(at::kFloat));
    initialise(weight, spec, "measured", /*seed=*/1);
    weights.push_back(weight.to(dtype).requires_grad_(true));
    weights.back().mutable_grad() = first_gradient(spec, host_options(at::kFloat));
  }
  return weights;
}

// Zeros are valid tokens and targets of any vocabulary.
std::vector<at::Tensor> example_inputs(std::span<const TensorSpec> specs) {
  std::vector<at::Tensor> inputs;
  for (const TensorSpec& spec : specs) {
    const bool floating = c10::isFloatingType(spec.dtype);
    const at::Tensor input = at::full(spec.shape, floating ? 0.5 : 0.0, host_options(spec.dtype));
    inputs.push_back(floating ? input.requires_grad_(true) : input);
  }
  return inputs;
}

// Bytes of the storages that aren't an input's.
std::int64_t new_bytes(const std::vector<at::Tensor>& tensors,
                       const std::vector<at::Tensor>& inputs) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    const bool of_input = std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
      return tensor.is_alias_of(input);
    });
    if (!of_input) bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  return bytes;
}

std::int64_t gradient_bytes(const std::vector<at::Tensor>& inputs) {
  std::int64_t bytes = 0;
  for (const at::Tensor& input : inputs)
    if (input.requires_grad()) bytes += static_cast<std::int64_t>(input.nbytes());
  return bytes;
}

// Only the graph stays, as between the forward and the backward of a stage.
std::pair<torch::autograd::edge_list, std::vector<at::Tensor>> graph_of(
    std::vector<at::Tensor> outputs) {
  torch::autograd::edge_list roots;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    roots.push_back(torch::autograd::impl::gradient_edge(output));
    gradients.push_back(at::ones_like(output).detach());
  }
  return {std::move(roots), std::move(gradients)};
}

// Runs a forward and its backward in halves.
void measure_halves(const Layer& layer, const ForwardContext& context,
                    const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& inputs,
                    MemoryAccount& account, LayerBytes& bytes) {
  const std::int64_t before = account.current_bytes();
  WeightHalf half;
  {
    auto [roots, gradients] = graph_of(layer.forward(context, weights, inputs));
    if (roots.empty()) return;
    const std::int64_t between = account.current_bytes();
    account.reset_peak();
    run_input_half(roots, std::move(gradients), inputs, half);
    bytes.input_transient =
        std::max<std::int64_t>(0, account.peak_bytes() - between - gradient_bytes(inputs));
  }
  bytes.kept = std::max<std::int64_t>(0, account.current_bytes() - before);
  account.reset_peak();
  run_weight_half(std::move(half));
  bytes.weight_transient = std::max<std::int64_t>(0, account.peak_bytes() - before - bytes.kept);
}

}  // namespace

LayerBytes measured_bytes(const Layer& layer, std::span<const TensorSpec> specs,
                          Recompute recompute, const ContextSplit& split) {
  install_accounting_allocator();
  MemoryAccount account("measured layer");
  const AccountScope scope(account);
  // One thread: with more, the number of pieces in flight would vary.
  ThreadPool one(1);
  const ThreadPoolScope alone(one, ThreadPoolScope::AtenThreads::kKeep);
  const at::AutoGradMode grad(true);
  const std::vector<at::Tensor> weights = leaves(layer, specs), inputs = example_inputs(specs);
  LossSink sink;
  const LoneContext others(split);
  ForwardContext context{.training = true,
                         .recompute = recompute,
                         .loss = &sink,
                         .context_parallel = split.divides() ? &others : nullptr};

  const std::int64_t before = account.current_bytes();
  const auto forward_peak = [&] {
    account.reset_peak();
    std::vector<at::Tensor> outputs = layer.forward(context, weights, inputs);
    return std::pair(std::move(outputs), account.peak_bytes() - before);
  };
  LayerBytes forward;
  for (const bool training : {false, true}) {  // a validation, and a forward that will run again
    const at::NoGradGuard no_grad;
    context.training = training;
    const auto [outputs, peak] = forward_peak();
    forward.no_grad_transient =
        std::max(forward.no_grad_transient.value_or(0), peak - new_bytes(outputs, inputs));
  }
  measure_halves(layer, context, weights, inputs, account, forward);
  auto [outputs, peak] = forward_peak();
  const std::int64_t made = new_bytes(outputs, inputs), held = account.current_bytes() - before;
  forward.saved = std::max<std::int64_t>(0, held - made);
  forward.forward_transient = peak - held;

  auto [roots, gradients] = graph_of(std::move(outputs));
  if (roots.empty()) return forward;
  const std::int64_t between = account.current_bytes();
  account.reset_peak();
  torch::autograd::Engine::get_default_engine().execute(roots, std::move(gradients),
                                                        /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
  LayerBytes bytes = forward;
  bytes.backward_transient =
      std::max<std::int64_t>(0, account.peak_bytes() - between - gradient_bytes(inputs));
  return bytes;
}

}  // namespace strata
