#include "strata/models/decoder_options.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
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
