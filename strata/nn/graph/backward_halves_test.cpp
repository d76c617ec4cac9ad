// Compares both halves of a backward with a whole one, bit by bit, for graphs of PyTorch's and of
// Strata's operators.
#include "strata/nn/graph/backward_halves.h"

#include <ATen/Context.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>

#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

using Tensors = std::vector<at::Tensor>;
using Forward = std::function<Tensors(const Tensors& inputs, const Tensors& weights)>;

struct Case {
  std::vector<std::vector<std::int64_t>> inputs, weights;
  Forward forward;
  /// the weights whose gradients the first half adds
  std::vector<int> early = {};
};

struct Gradients {
  Tensors inputs, weights;
};

Tensors leaves(const std::vector<std::vector<std::int64_t>>& shapes, bool preset) {
  Tensors all;
  for (const auto& shape : shapes) {
    all.push_back(at::randn(shape).requires_grad_(true));
    if (preset) all.back().mutable_grad() = at::zeros(shape).add_(0.25);
  }
  return all;
}

Gradients run(const Case& c, bool halves) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(7);
  const Tensors inputs = leaves(c.inputs, false), weights = leaves(c.weights, true);
  Gradients found;
  // Twice: later micro-batches add to what earlier ones left.
  for (int repeat = 0; repeat < 2; ++repeat) {
    torch::autograd::edge_list roots;
    Tensors output_gradients;
    for (const at::Tensor& output : c.forward(inputs, weights)) {
      roots.push_back(torch::autograd::impl::gradient_edge(output));
      output_gradients.push_back(at::randn(output.sizes()));
    }
    if (halves) {
      WeightHalf rest;
      const Tensors before = [&] {
        Tensors all;
        for (const at::Tensor& weight : weights) all.push_back(weight.grad().clone());
        return all;
      }();
      found.inputs = run_input_half(roots, std::move(output_gradients), inputs, rest);
      roots.clear();
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const bool early = std::ranges::find(c.early, static_cast<int>(i)) != c.early.end();
        EXPECT_EQ(at::equal(weights[i].grad(), before[i]), !early) << "weight " << i;
      }
      run_weight_half(std::move(rest));
    } else {
      torch::autograd::Engine::get_default_engine().execute(roots, std::move(output_gradients),
                                                            false, false, true);
      found.inputs.clear();
      for (const at::Tensor& input : inputs) {
        found.inputs.push_back(input.grad());
        input.mutable_grad() = at::Tensor();
      }
    }
  }
  for (const at::Tensor& weight : weights) found.weights.push_back(weight.grad());
  return found;
}

void expect_equal(const Case& c) {
  const Gradients whole = run(c, false), halves = run(c, true);
  ASSERT_EQ(whole.inputs.size(), halves.inputs.size());
  for (std::size_t i = 0; i < whole.inputs.size(); ++i) {
    ASSERT_EQ(whole.inputs[i].defined(), halves.inputs[i].defined()) << "input " << i;
    if (!whole.inputs[i].defined()) continue;
    EXPECT_TRUE(at::equal(whole.inputs[i], halves.inputs[i])) << "input " << i;
    EXPECT_EQ(whole.inputs[i].strides(), halves.inputs[i].strides()) << "input " << i;
  }
  for (std::size_t i = 0; i < whole.weights.size(); ++i)
    EXPECT_TRUE(at::equal(whole.weights[i], halves.weights[i])) << "weight " << i;
}

TEST(BackwardHalves, LinearLayersOfPyTorch) {
  expect_equal(
      {.inputs = {{5, 6}},
       .weights = {{8, 6}, {8}, {6, 8}, {6}},
       .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
         return {at::add(x[0], at::linear(at::gelu(at::linear(x[0], w[0], w[1])), w[2], w[3]))};
       }});
}

TEST(BackwardHalves, NormsRunWholeInTheFirstHalf) {
  expect_equal({.inputs = {{5, 6}},
                .weights = {{6}, {6}, {3, 6}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  return {at::linear(at::layer_norm(x[0], {6}, w[0], w[1]), w[2])};
                },
                .early = {0, 1}});
}

TEST(BackwardHalves, Convolutions) {
  expect_equal({.inputs = {{2, 3, 8, 8}},
                .weights = {{4, 3, 3, 3}, {4}, {2, 4, 1, 1}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  return {at::conv2d(at::gelu(at::conv2d(x[0], w[0], w[1])), w[2])};
                }});
}

TEST(BackwardHalves, AWeightThatIsUsedTwice) {
  expect_equal({.inputs = {{5, 6}},
                .weights = {{6, 6}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  return {at::linear(at::gelu(at::linear(x[0], w[0])), w[0])};
                }});
}

// The gain is early because the norm is, and the product with the same vector follows it.
TEST(BackwardHalves, AWeightOfANormThatAProductUsesToo) {
  expect_equal({.inputs = {{5, 6}},
                .weights = {{6}, {6, 6}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  const at::Tensor scaled = at::mul(w[1], w[0]);
                  return {at::linear(at::layer_norm(x[0], {6}, w[0]), scaled)};
                },
                .early = {0, 1}});
}

TEST(BackwardHalves, AMatrixMadeOfWeights) {
  expect_equal({.inputs = {{5, 6}},
                .weights = {{4, 6}, {4, 1}, {2, 6}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  return {at::linear(x[0], at::cat({at::mul(w[0], w[1]), w[2]}))};
                }});
}

TEST(BackwardHalves, SeveralInputsAndOutputs) {
  expect_equal({.inputs = {{5, 6}, {5, 6}, {5, 4}},
                .weights = {{6, 6}, {4, 6}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  const at::Tensor sum = at::add(at::linear(x[0], w[0]), x[1]);
                  return {sum, at::linear(sum, w[1]), x[2].t()};
                }});
}

TEST(BackwardHalves, AnInputThatTheLayerIgnores) {
  expect_equal({.inputs = {{5, 6}, {5, 6}},
                .weights = {{6, 6}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  return {at::linear(x[1], w[0])};
                }});
}

TEST(BackwardHalves, ALayerWithoutDifferentiableInputs) {
  expect_equal({.inputs = {},
                .weights = {{7, 6}, {4, 6}, {6}},
                .forward = [](const Tensors&, const Tensors& w) -> Tensors {
                  const at::Tensor tokens = at::arange(5).to(at::kLong);
                  return {at::linear(at::layer_norm(at::embedding(w[0], tokens), {6}, w[2]), w[1])};
                }});
}

// PyTorch does not say which gradients such an operator computes.
struct Scale : torch::autograd::Function<Scale> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], gradients[0] * saved[0]};
  }
};

TEST(BackwardHalves, AnOperatorOutsidePyTorchRunsWholeInTheFirstHalf) {
  expect_equal({.inputs = {{5, 6}},
                .weights = {{5, 6}, {6, 6}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  return {Scale::apply(at::linear(x[0], w[1]), w[0])};
                },
                .early = {0}});
}

TEST(BackwardHalves, OwnOperators) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kCheap, Recompute::kProducts})
    expect_equal({.inputs = {{5, 8}},
                  .weights = {{8}, {8}, {32, 8}, {32}, {8, 32}, {8}, {8, 8}, {8}},
                  .forward = [recompute](const Tensors& x, const Tensors& w) -> Tensors {
                    const at::Tensor y = linear(x[0], w[6], w[7]);
                    return {residual_add(
                        y, feed_forward(y, {.gain = w[0], .bias = w[1]}, {w[2], w[3]},
                                        Activation::kGelu, {w[4], w[5]}, recompute, nullptr))};
                  },
                  .early = {0, 1}});
}

TEST(BackwardHalves, AWeightOfAnOwnAndOfAnotherOperator) {
  expect_equal({.inputs = {{5, 6}},
                .weights = {{6, 6}, {6}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  return {at::linear(at::gelu(linear(x[0], w[0], w[1])), w[0])};
                },
                .early = {0, 1}});
}

TEST(BackwardHalves, AWeightOfTwoOwnOperators) {
  expect_equal({.inputs = {{5, 6}},
                .weights = {{6, 6}, {6}},
                .forward = [](const Tensors& x, const Tensors& w) -> Tensors {
                  return {linear(at::gelu(linear(x[0], w[0], w[1])), w[0], w[1])};
                }});
}

TEST(BackwardHalves, TheFirstHalfFreesWhatTheSecondDoesNotNeed) {
  const at::Tensor x = at::randn({5, 6}).requires_grad_(true);
  const at::Tensor weight = at::randn({6, 6}).requires_grad_(true);
  weight.mutable_grad() = at::zeros({6, 6});
  c10::weak_intrusive_ptr<c10::TensorImpl> saved = [&] {
    const at::Tensor y = at::linear(x, weight);
    return c10::weak_intrusive_ptr<c10::TensorImpl>(y.getIntrusivePtr());
  }();
  WeightHalf rest;
  {
    torch::autograd::edge_list roots;
    {
      const at::Tensor y = at::linear(x, weight);
      saved = c10::weak_intrusive_ptr<c10::TensorImpl>(y.getIntrusivePtr());
      roots.push_back(torch::autograd::impl::gradient_edge(at::gelu(y)));
    }
    EXPECT_FALSE(saved.expired());  // the activation saved it
    run_input_half(roots, {at::randn({5, 6})}, std::vector{x}, rest);
  }
  EXPECT_TRUE(saved.expired());
  run_weight_half(std::move(rest));
  EXPECT_GT(weight.grad().abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace strata
