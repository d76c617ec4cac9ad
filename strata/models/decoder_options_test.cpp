#include "strata/models/decoder_options.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/models/attention_options.h"
#include "strata/models/model.h"

namespace strata {
namespace {

std::string refusal(const DecoderOptions& options) {
  try {
    completed(options);
    return "accepted";
  } catch (const UserError& error) {
    return error.text().where + ": " + error.text().expected + ", not " + error.text().got;
  }
}

TEST(DecoderOptions, RefusalStatesDefaultOfOtherKindsField) {
  EXPECT_EQ(refusal({.kind = DecoderKind::kLlama, .dropout = 0.1}), "model.dropout: 0, not 0.1");
  EXPECT_EQ(refusal({.kind = DecoderKind::kLlama, .skip = true}), "model.skip: false, not true");
  EXPECT_EQ(refusal({.kv_heads = 3}), "model.kv_heads: 0, not 3");
  EXPECT_EQ(refusal({.rope = {.theta = 20000}}), "model.rope.theta: 10000, not 20000");
  EXPECT_EQ(refusal({.norm_epsilon = 1e-6}), "model.norm_epsilon: 1e-05, not 1e-06");
  EXPECT_EQ(refusal({.qk_norm = true}), "model.qk_norm: false, not true");
}

TEST(DecoderOptions, RefusalNamesPlaceOfField) {
  try {
    completed({.kind = DecoderKind::kLlama, .heads = 6, .kv_heads = 4},
              [](const std::string& field) { return "at " + field; });
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "at model.kv_heads");
    EXPECT_EQ(error.text().what.substr(0, 16), "model.kv_heads: ");
  }
}

TEST(DecoderOptions, AcceptFixedValuesOfGpt) {
  EXPECT_EQ(refusal({.width = 64, .heads = 4, .kv_heads = 4, .head_width = 16, .mlp_width = 256}),
            "accepted");
}

DecoderOptions with(const AttentionPattern& pattern) {
  return {.width = 64, .heads = 4, .attention = pattern};
}

TEST(DecoderOptions, RefusalStatesPatternsField) {
  using enum PatternKind;
  EXPECT_EQ(refusal(with({.window = 100})), "model.attention.window: 1024, not 100");
  EXPECT_EQ(refusal(with({.kind = kSliding, .window = 100})), "accepted");
  EXPECT_EQ(refusal(with({.kind = kSliding, .random_blocks = 2})),
            "model.attention.random_blocks: 1, not 2");
  EXPECT_EQ(refusal(with({.kind = kSliding, .block = 32})), "model.attention.block: 64, not 32");
  EXPECT_EQ(refusal(with({.kind = kFixed, .window = 100})),
            "model.attention.window: a multiple of model.attention.block, 64, not 100");
  EXPECT_EQ(refusal(with({.kind = kFixed, .window = 128, .forms = 3})),
            "model.attention.global_blocks: forms times global_blocks at most 2, not 3");
  EXPECT_EQ(refusal(with({.kind = kBigBird, .block = 24})),
            "model.attention.block: a multiple of 16, not 24");
  EXPECT_EQ(refusal(with({.kind = kBigBird, .random_blocks = 2, .forms = 5})),
            "model.attention.forms: at most 4, not 5");
  EXPECT_EQ(refusal(with({.kind = kVariable})),
            "model.attention.windows: a list of lengths, not none");
  EXPECT_EQ(refusal(with({.kind = kVariable, .windows = {{64}, {65}}})),
            "model.attention.windows[1]: a multiple of model.attention.block, 64, not 65");
  EXPECT_EQ(refusal(with({.kind = kLongformer, .dense_every = 1})),
            "model.attention.dense_every: 0, or 2 to 6, not 1");
  EXPECT_EQ(refusal(with({.kind = kLongformer, .dense_every = 7})),
            "model.attention.dense_every: 0, or 2 to 6, not 7");
  EXPECT_EQ(refusal(with({.kind = kLongformer, .globals = {{0}, {4}}})),
            "model.attention.globals: at most 3, the last block of model.context, not 4");
  EXPECT_EQ(refusal(with({.kind = kBigBird, .random_blocks = 0, .forms = 2})),
            "model.attention.forms: model.attention.random_blocks of at least 1, not 0");
  EXPECT_EQ(refusal(with({.kind = kFixed, .global_blocks = 0, .forms = 2})),
            "model.attention.forms: model.attention.global_blocks of at least 1, not 0");
}

TEST(DecoderOptions, ReadsPatternTextThatItWrote) {
  using enum PatternKind;
  for (const AttentionPattern& pattern :
       {AttentionPattern(), AttentionPattern{.kind = kSliding, .window = 5, .dense_every = 3},
        AttentionPattern{.kind = kFixed, .window = 256, .global_blocks = 2, .forms = 2},
        AttentionPattern{.kind = kVariable,
                         .block = 32,
                         .windows = {{64}, {128}},
                         .globals = {{0}, {7}},
                         .random_blocks = 2},
        AttentionPattern{.kind = kBigBird, .global_blocks = 0, .random_blocks = 1, .forms = 4},
        AttentionPattern{.kind = kLongformer, .globals = {{3}}}})
    EXPECT_EQ(read_pattern(pattern_text(pattern), "manifest"), pattern) << pattern_text(pattern);
  EXPECT_EQ(pattern_text({.kind = kVariable, .windows = {{64}, {128}}}),
            "{pattern: variable, block: 64, windows: [64,128], globals: [0], random_blocks: 1, "
            "forms: 1, dense_every: 0}");
}

TEST(DecoderOptions, EveryNthLayerIsDense) {
  const DecoderOptions options{
      .layers = 5,
      .width = 64,
      .heads = 4,
      .attention = {.kind = PatternKind::kSliding, .window = 8, .dense_every = 2}};
  const Sequential model = make_model(options);
  const auto signature = [&](int block) { return model.layer(1 + block).signature(); };
  EXPECT_EQ(signature(0).find("sliding") != std::string::npos, true);
  EXPECT_EQ(signature(1).find("sliding"), std::string::npos);
  EXPECT_EQ(signature(0), signature(2));
  EXPECT_EQ(signature(1), signature(3));
  EXPECT_EQ(signature(0), signature(4));
}

// Keys that a ring passes on would not be attended to.
TEST(DecoderOptions, PatternIsRefusedInARing) {
  const DecoderOptions options{
      .width = 64, .heads = 4, .attention = {.kind = PatternKind::kSliding, .window = 8}};
  for (const ContextSplit& context : {ContextSplit{.ranks = 2}, ContextSplit{.block = 16}})
    EXPECT_THROW(make_model(options, DecoderOutput::kLoss, {.context = context}), UserError);
  make_model(options, DecoderOutput::kLoss,
             {.context = {.ranks = 2, .exchange = ContextExchange::kUlysses}});
}

TEST(DecoderOptions, CountLayersOfModel) {
  for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama})
    for (const std::int64_t layers : {1, 3}) {
      const DecoderOptions options{.kind = kind, .layers = layers, .width = 32, .heads = 2};
      EXPECT_EQ(num_layers(options), make_model(options).num_layers());
    }
  const DecoderOptions skipping{.layers = 2, .width = 32, .heads = 2, .skip = true};
  EXPECT_EQ(num_layers(skipping), make_model(skipping).num_layers());
}

}  // namespace
}  // namespace strata
