// Compares decoding with a cache with the whole forward, for every architecture and mesh. Only the
// order of sums differs: kTolerance is relative to the largest logit.
#include "strata/serve/decoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/serve/example_weights_test.h"

namespace strata {
namespace {

constexpr double kTolerance = 1e-5;
constexpr std::int64_t kContext = 24;

struct Kind {
  const char* name;
  DecoderOptions options;
};

DecoderOptions gpt() {
  return {.layers = 3, .width = 32, .heads = 4, .vocab = 50, .context = kContext, .dropout = 0.5};
}

DecoderOptions llama() {
  return {.kind = DecoderKind::kLlama,
          .layers = 3,
          .width = 32,
          .heads = 4,
          .vocab = 50,
          .context = kContext,
          .kv_heads = 2,
          .mlp_width = 48};
}

template <typename F>
DecoderOptions changed(DecoderOptions options, F change) {
  change(options);
  return options;
}

std::vector<Kind> kinds() {
  return {{"Gpt2", gpt()},
          {"Gpt2Untied", changed(gpt(), [](auto& o) { o.tie = false; })},
          {"Gpt2Skip", changed(gpt(), [](auto& o) { o.skip = true; })},
          {"LlamaGroupedHeads", llama()},
          {"Llama3Positions", changed(llama(),
                                      [](auto& o) {
                                        o.rope = {.theta = 500000,
                                                  .factor = 8,
                                                  .low_frequency_factor = 1,
                                                  .high_frequency_factor = 4,
                                                  .original_context = 16};
                                      })},
          {"LlamaWideHeads", changed(llama(), [](auto& o) { o.head_width = 12; })},
          {"Qwen2", changed(llama(), [](auto& o) { o.qkv_bias = true; })},
          {"Qwen3", changed(llama(), [](auto& o) { o.qk_norm = true; })}};
}

std::vector<std::int64_t> text(std::int64_t length) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < length; ++i) tokens.push_back((i * i * 7 + 3 * i + 11) % 50);
  return tokens;
}

// The model as in training: whole samples, no cache; without dropout and smoothing.
PassOutputs whole_forward(DecoderOptions options, const std::vector<std::int64_t>& tokens) {
  const at::NoGradGuard no_grad;
  options.dropout = 0;
  const Sequential model = make_model(options, DecoderOutput::kLogits);
  std::vector<at::Tensor> values(model.dataflow().values.size());
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    std::vector<at::Tensor> weights, inputs;
    for (const WeightSpec& spec : model.layout(layer).specs)
      weights.push_back(example_weight(
          spec.tie.empty() ? model.name(layer) + "." + spec.name : "embed.tokens.weight",
          spec.shape));
    for (const InputRef& ref : model.inputs(layer))
      inputs.push_back(ref.value >= 0 ? values[ref.value] : at::tensor(tokens).unsqueeze(0));
    const std::vector<at::Tensor> outputs =
        model.layer(layer).forward({.layer = layer}, weights, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) values[model.outputs(layer)[i]] = outputs[i];
  }
  const std::vector<int>& last = model.outputs(model.num_layers() - 1);
  return {.logits = values[last[0]], .states = values[last[1]]};
}

// Each text has one page, as long as the context.
Pass one(std::int64_t position, std::span<const std::int64_t> tokens) {
  return {{.tokens = {tokens.begin(), tokens.end()}, .position = position, .pages = {0}}};
}

void expect_near(const at::Tensor& numbers, const at::Tensor& expected) {
  ASSERT_EQ(numbers.sizes(), expected.sizes());
  const double largest = expected.abs().max().item<double>();
  EXPECT_GT(largest, 0.1);  // something to compare
  EXPECT_LT((numbers - expected).abs().max().item<double>(), kTolerance * largest);
}

class Decoding : public testing::TestWithParam<std::tuple<std::size_t, Mesh>> {
 protected:
  DecoderOptions options() const { return kinds()[std::get<0>(GetParam())].options; }
  Mesh mesh() const { return std::get<1>(GetParam()); }
};

// A prompt, then single tokens, then several at once, to the end of the context.
TEST_P(Decoding, EqualsWholeForward) {
  const std::vector<std::int64_t> tokens = text(kContext);
  const Sequential model =
      make_model(options(), DecoderOutput::kLogits, {.ranks = mesh()[Axis::kTensor]});
  run_thread_ranks({.ranks = mesh().size()}, [&](Group& group, MemoryAccount&) {
    Decoder decoder(model, mesh(), {.page_tokens = kContext}, group);
    fill_with_examples(decoder);
    for (int round = 0; round < 2; ++round) {
      std::size_t end = 0;
      for (const std::size_t count : {5, 1, 1, 1, 4, 1, 11}) {
        const PassOutputs made = decoder.forward(
            one(static_cast<std::int64_t>(end), std::span(tokens).subspan(end, count)));
        end += count;
        EXPECT_EQ(made.logits.defined(), group.rank() >= mesh().size() - mesh()[Axis::kTensor]);
        if (!decoder.decides()) continue;
        const PassOutputs whole = whole_forward(options(), {tokens.begin(), tokens.begin() + end});
        expect_near(made.logits, whole.logits);
        expect_near(made.states, whole.states);
      }
    }  // the second text does not depend on the first
  });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Decoding,
    testing::Combine(testing::Range<std::size_t>(0, kinds().size()),
                     testing::Values(Mesh{}, Mesh{{Axis::kPipeline, 3}}, Mesh{{Axis::kTensor, 2}},
                                     Mesh{{Axis::kPipeline, 2}, {Axis::kTensor, 2}})),
    [](const auto& info) {
      const Mesh mesh = std::get<1>(info.param);
      return std::string(kinds()[std::get<0>(info.param)].name) + "Pp" +
             std::to_string(mesh[Axis::kPipeline]) + "Tp" + std::to_string(mesh[Axis::kTensor]);
    });

TEST(DecoderMemory, IsOnlyThatOfWeightsAndCache) {
  DecoderOptions options = llama();
  options.width = 128;
  options.mlp_width = 512;
  const Sequential model = make_model(options, DecoderOutput::kLogits);
  const std::int64_t weights = model.num_weights() * 4;
  const std::int64_t cache = 2 * options.layers * kContext * options.kv_heads * (128 / 4) * 4;
  run_thread_ranks({}, [&](Group& group, MemoryAccount& account) {
    Decoder decoder(model, Mesh{}, {.page_tokens = kContext}, group);
    fill_with_examples(decoder);
    account.reset_peak();
    EXPECT_EQ(cache, page_bytes(model, decoder_steps(model, {}), kContext));
    EXPECT_NEAR(static_cast<double>(account.current_bytes()), static_cast<double>(weights + cache),
                0.01 * static_cast<double>(weights));
    decoder.forward(one(0, text(1)));
    EXPECT_LT(account.peak_bytes(), 1.05 * static_cast<double>(weights + cache));
  });
}

TEST(DecoderMesh, RefusesMoreStagesThanLayers) {
  const Sequential model = make_model(gpt(), DecoderOutput::kLogits);
  EXPECT_THROW(run_thread_ranks({.ranks = 6},
                                [&](Group& group, MemoryAccount&) {
                                  Decoder decoder(model, {{Axis::kPipeline, 6}}, {}, group);
                                }),
               UserError);
}

}  // namespace
}  // namespace strata
