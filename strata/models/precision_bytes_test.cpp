// Compares the bytes that 16-bit layers state with what they allocate, because plans use the stated
// bytes.
#include <gtest/gtest.h>

#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/nn/graph/initialise.h"
#include "strata/nn/host/host_primitives.h"

namespace strata {
namespace {

// With many rows activations are most of a layer's bytes; with few, the sums of its weights'
// gradients.
using Kind = std::tuple<DecoderKind, at::ScalarType, std::int64_t>;

class PrecisionBytes : public testing::TestWithParam<Kind> {
 protected:
  static Sequential model() {
    const auto& [kind, precision, tokens] = GetParam();
    return make_model({.kind = kind, .layers = 1, .width = 64, .heads = 4, .context = tokens},
                      DecoderOutput::kLoss, {}, precision);
  }
  static std::vector<TensorSpec> batch() {
    const std::int64_t tokens = std::get<2>(GetParam());
    return std::vector<TensorSpec>(2, {.shape = {tokens / 16, tokens}, .dtype = at::kLong});
  }
  static void expect_what_layers_allocate();
};

std::vector<at::Tensor> leaves(const LayerLayout& layout, at::ScalarType precision) {
  std::vector<at::Tensor> weights;
  for (const WeightSpec& spec : layout.specs) {
    const at::Tensor weight = at::zeros(spec.shape);
    initialise(weight, spec, "layer", 1);
    weights.push_back(weight.to(precision).requires_grad_(true));
    weights.back().mutable_grad() = at::zeros(spec.shape);
  }
  return weights;
}

// Measures the bytes of one forward and backward in addition to weights, inputs, outputs and their
// gradients.
LayerBytes measure(const Layer& layer, const ForwardContext& context,
                   const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& inputs,
                   MemoryAccount& account) {
  const auto own = static_cast<std::int64_t>(inputs[0].requires_grad() ? inputs[0].nbytes() : 0);
  const std::int64_t before = account.current_bytes();
  LayerBytes bytes;
  account.reset_peak();
  {
    const at::NoGradGuard no_grad;
    const at::Tensor y = layer.forward(context, weights, inputs)[0];
    bytes.no_grad_transient = account.peak_bytes() - before - static_cast<std::int64_t>(y.nbytes());
  }
  account.reset_peak();
  const at::Tensor y = layer.forward(context, weights, inputs)[0];
  const auto out = static_cast<std::int64_t>(y.nbytes());
  bytes.saved = account.current_bytes() - before - out;
  bytes.forward_transient = account.peak_bytes() - before - out - bytes.saved;
  const at::Tensor dy = at::ones_like(y);
  const std::int64_t between = account.current_bytes();
  account.reset_peak();
  y.backward(dy);
  bytes.backward_transient = account.peak_bytes() - between - own;
  return bytes;
}

// With both kinds of products, independent of what this processor is fast in.
TEST_P(PrecisionBytes, EqualAllocatedBytes) {
  for (const bool widen : {true, false}) {
    SCOPED_TRACE(widen ? "widened products" : "products in 16 bit");
    const WidenProducts products(widen);
    expect_what_layers_allocate();
  }
}

void PrecisionBytes::expect_what_layers_allocate() {
  const at::ScalarType precision = std::get<1>(GetParam());
  const Sequential model = PrecisionBytes::model();
  const std::vector<TensorSpec> values = model.value_specs(batch());
  EXPECT_EQ(values[0].dtype, precision);
  EXPECT_EQ(values.back().dtype, at::kFloat);  // the loss
  run_thread_ranks({}, [&](Group&, MemoryAccount& account) {
    for (int layer = 0; layer < model.num_layers(); ++layer) {
      const std::vector<at::Tensor> weights = leaves(model.layout(layer), precision);
      const std::vector<TensorSpec> specs = model.input_specs(layer, batch(), values);
      std::vector<at::Tensor> inputs;
      for (const TensorSpec& spec : specs)
        inputs.push_back(spec.dtype == at::kLong
                             ? at::randint(200, spec.shape, at::kLong)
                             : at::randn(spec.shape).to(spec.dtype).requires_grad_());
      for (const Recompute recompute : kRecomputeLevels) {
        SCOPED_TRACE(testing::Message() << model.name(layer) << ", " << name_of(recompute));
        if (inputs[0].requires_grad()) inputs[0].mutable_grad().reset();
        LossSink sink;
        const LayerBytes real =
            measure(model.layer(layer),
                    {.training = true, .recompute = recompute, .loss_scale = 1, .loss = &sink},
                    weights, inputs, account);
        const LayerBytes stated = model.layer(layer).bytes(specs, recompute);
        const double small = 0.05 * static_cast<double>(real.saved + real.backward_transient);
        EXPECT_NEAR(stated.saved, real.saved, 1024);
        const auto expect_enough = [&](std::int64_t foretold, std::int64_t taken) {
          EXPECT_LE(static_cast<double>(taken), static_cast<double>(foretold) + small);
          // Products of few rows may read a weight in place, and several threads make pieces of a
          // weight's gradient at the same time, this thread one after another.
          if (std::get<2>(GetParam()) < 128) return;
          EXPECT_GE(static_cast<double>(taken), static_cast<double>(foretold) - small);
        };
        expect_enough(stated.forward_transient, real.forward_transient);
        expect_enough(stated.backward_transient, real.backward_transient);
        expect_enough(stated.without_graph(), real.without_graph());
      }
    }
  });
}

TEST_P(PrecisionBytes, SignaturesContainPrecision) {
  const auto& [kind, precision, tokens] = GetParam();
  const Sequential half = model();
  const Sequential whole =
      make_model({.kind = kind, .layers = 1, .width = 64, .heads = 4, .context = tokens});
  for (int layer = 0; layer < half.num_layers(); ++layer)
    EXPECT_EQ(half.layer(layer).signature() == whole.layer(layer).signature(),
              precision == at::kFloat);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PrecisionBytes,
                         testing::Combine(testing::Values(DecoderKind::kGpt, DecoderKind::kLlama),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::Values(16, 128)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) +
                                  c10::toString(std::get<1>(info.param)) +
                                  std::to_string(std::get<2>(info.param));
                         });

}  // namespace
}  // namespace strata
