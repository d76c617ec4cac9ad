// Tests which threads ATen's operators have in a layer's forward and backward.
#include "strata/pipeline/layer_graph.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/device/device.h"
#include "strata/device/thread_pool.h"

namespace strata {
namespace {

struct Seen {
  int forward = 0, backward = 0;
};
Seen seen;

struct Recorder : torch::autograd::Function<Recorder> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    seen.forward = at::get_num_threads();
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    seen.backward = at::get_num_threads();
    return gradients;
  }
};

struct RecordingLayer final : Layer {
  explicit RecordingLayer(bool aten) : aten(aten) {}
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs.begin(), inputs.end()};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    return {Recorder::apply(inputs[0])};
  }
  bool uses_aten_threads() const override { return aten; }
  bool aten;
};

TEST(LayerGraph, LayersOfAtenHaveTheThreadsOfTheRankAndOthersHaveOne) {
  ThreadPool pool(3);
  const ThreadPoolScope scope(pool);
  const at::Tensor x = at::ones({2}, host_options(at::kFloat));
  for (const bool aten : {false, true}) {
    const RecordingLayer layer(aten);
    const int expected = aten ? 3 : 1;
    seen = {};
    forward_without_graph(layer, {}, {}, std::vector{x});
    EXPECT_EQ(seen.forward, expected);
    seen = {};
    LayerGraph graph{.inputs = make_inputs({x}), .roots = {}};
    forward_with_graph(layer, {}, {}, graph);
    EXPECT_EQ(at::get_num_threads(), 1);
    backward(std::move(graph), {x});
    EXPECT_EQ(seen.forward, expected);
    EXPECT_EQ(seen.backward, expected);
    EXPECT_EQ(at::get_num_threads(), 1);
  }
}

}  // namespace
}  // namespace strata
