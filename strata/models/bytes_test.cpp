// Compares the bytes that layers of decoders state with what they allocate, because plans use the
// stated bytes.
#include <gtest/gtest.h>

#include "strata/models/model.h"
#include "strata/nn/graph/measured_bytes.h"

namespace strata {
namespace {

constexpr double kHalfTolerance = 0.07;  // share of a first half, at levels after kCheap
constexpr double kTolerance = 0.03;  // share of the layer's bytes: the allocator's blocks, tables

constexpr double kSentShare = 0.3;  // of what a layer holds: messages on their way

struct Kind {
  const char* name;
  DecoderOptions options;
  ContextSplit context = {};
};

class DecoderBytes : public testing::TestWithParam<Kind> {};

TEST_P(DecoderBytes, EqualMeasuredBytes) {
  const ContextSplit& context = GetParam().context;
  DecoderOptions options = GetParam().options;
  options.context *= context.ranks;
  const Sequential model = make_model(options, DecoderOutput::kLoss, {.context = context});
  const std::vector<TensorSpec> batch(2, {.shape = {8, 128}, .dtype = at::kLong});
  const std::vector<TensorSpec> values = model.value_specs(batch);
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const std::vector<TensorSpec> inputs = model.input_specs(layer, batch, values);
    for (const Recompute recompute : kRecomputeLevels) {
      SCOPED_TRACE(model.name(layer) + ", " + name_of(recompute));
      const LayerBytes stated = model.layer(layer).bytes(inputs, recompute);
      const LayerBytes measured = measured_bytes(model.layer(layer), inputs, recompute, context);
      const double small =
          kTolerance * static_cast<double>(measured.saved + measured.backward_transient) + 1024;
      // The statement counts messages on their way, which LoneContext drops.
      const bool sends = context.ranks > 1;
      const auto expect_near = [&](std::int64_t states, std::int64_t measures) {
        EXPECT_GE(states, measures - small);
        EXPECT_LE(states,
                  measures + small + (sends ? kSentShare * (measured.saved + measures) : 0));
      };
      EXPECT_NEAR(stated.saved, measured.saved, small);
      expect_near(stated.forward_transient, measured.forward_transient);
      expect_near(stated.backward_transient, measured.backward_transient);
      expect_near(stated.without_graph(), measured.without_graph());
      EXPECT_NEAR(stated.kept, measured.kept, small);
      EXPECT_GE(stated.first_half(), measured.first_half() - small);
      EXPECT_LE(stated.first_half(),
                (sends ? 1 + kSentShare : 1) * measured.first_half() + 1.2 * small +
                    (recompute > Recompute::kCheap ? kHalfTolerance * measured.first_half() : 0));
      EXPECT_NEAR(stated.second_half(), measured.second_half(), small);
    }
  }
}

ContextSplit exchange(int ranks) { return {.ranks = ranks, .exchange = ContextExchange::kUlysses}; }

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

DecoderOptions sliding(DecoderOptions options) {
  options.attention = {.kind = PatternKind::kSliding, .window = 40};
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DecoderBytes,
    testing::Values(Kind{"Gpt2", gpt(0)}, Kind{"Gpt2Dropout", gpt(0.1)},
                    Kind{"Llama", llama(704, false, false)},
                    Kind{"SmallMlp", llama(128, false, false)},
                    Kind{"Qwen2", llama(704, true, false)}, Kind{"Qwen3", llama(704, false, true)},
                    Kind{"Gpt2Sliding", sliding(gpt(0))},
                    Kind{"LlamaSliding", sliding(llama(704, false, false))},
                    Kind{"Qwen3Sliding", sliding(llama(704, false, true))},
                    Kind{"SlidingExchange", sliding(llama(704, false, false)), exchange(4)},
                    Kind{"Gpt2Ring", gpt(0.1), {.ranks = 4}},
                    Kind{"Gpt2Blocks", gpt(0), {.block = 16}},
                    Kind{"LlamaRing", llama(704, false, false), {.ranks = 2}},
                    Kind{"SmallMlpRing", llama(128, false, false), {.ranks = 4}},
                    Kind{"Qwen3Ring", llama(704, false, true), {.ranks = 2}},
                    Kind{"Gpt2Exchange", gpt(0.1), exchange(4)},
                    Kind{"LlamaExchange", llama(704, false, false), exchange(2)},
                    Kind{"UnevenExchange", llama(704, false, false), exchange(3)},
                    Kind{"Qwen3Exchange", llama(704, false, true), exchange(4)}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace strata
