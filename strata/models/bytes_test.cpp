// Compares the bytes that layers of decoders state with what they allocate, because plans use the
// stated bytes.
#include <gtest/gtest.h>

#include "strata/models/model.h"
#include "strata/nn/graph/measured_bytes.h"

namespace strata {
namespace {

constexpr double kHalfTolerance = 0.07;  // share of a first half, at levels after kCheap
constexpr double kTolerance = 0.03;  // share of the layer's bytes: the allocator's blocks, tables

struct Kind {
  const char* name;
  DecoderOptions options;
};

class DecoderBytes : public testing::TestWithParam<Kind> {};

TEST_P(DecoderBytes, EqualMeasuredBytes) {
  const Sequential model = make_model(GetParam().options);
  const std::vector<TensorSpec> batch(2, {.shape = {8, 128}, .dtype = at::kLong});
  const std::vector<TensorSpec> values = model.value_specs(batch);
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const std::vector<TensorSpec> inputs = model.input_specs(layer, batch, values);
    for (const Recompute recompute : kRecomputeLevels) {
      SCOPED_TRACE(model.name(layer) + ", " + name_of(recompute));
      const LayerBytes stated = model.layer(layer).bytes(inputs, recompute);
      const LayerBytes measured = measured_bytes(model.layer(layer), inputs, recompute);
      const double small =
          kTolerance * static_cast<double>(measured.saved + measured.backward_transient) + 1024;
      EXPECT_NEAR(stated.saved, measured.saved, small);
      EXPECT_NEAR(stated.forward_transient, measured.forward_transient, small);
      EXPECT_NEAR(stated.backward_transient, measured.backward_transient, small);
      EXPECT_NEAR(stated.without_graph(), measured.without_graph(), small);
      EXPECT_NEAR(stated.kept, measured.kept, small);
      EXPECT_GE(stated.first_half(), measured.first_half() - small);
      EXPECT_LE(stated.first_half(),
                measured.first_half() + 1.2 * small +
                    (recompute > Recompute::kCheap ? kHalfTolerance * measured.first_half() : 0));
      EXPECT_NEAR(stated.second_half(), measured.second_half(), small);
    }
  }
}

DecoderOptions gpt(double dropout) {
  return {.layers = 1, .width = 256, .heads = 8, .context = 128, .dropout = dropout};
}

DecoderOptions llama(std::int64_t mlp_width, bool qkv_bias, bool qk_norm) {
  return {.kind = DecoderKind::kLlama,
          .layers = 1,
          .width = 256,
          .heads = 8,
          .context = 128,
          .kv_heads = 4,
          .mlp_width = mlp_width,
          .qkv_bias = qkv_bias,
          .qk_norm = qk_norm};
}

INSTANTIATE_TEST_SUITE_P(Kinds, DecoderBytes,
                         testing::Values(Kind{"Gpt2", gpt(0)}, Kind{"Gpt2Dropout", gpt(0.1)},
                                         Kind{"Llama", llama(704, false, false)},
                                         Kind{"SmallMlp", llama(128, false, false)},
                                         Kind{"Qwen2", llama(704, true, false)},
                                         Kind{"Qwen3", llama(704, false, true)}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace strata
