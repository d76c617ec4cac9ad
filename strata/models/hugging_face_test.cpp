#include "strata/models/hugging_face.h"

#include <gtest/gtest.h>

#include <map>

#include "strata/base/errors.h"
#include "strata/models/model.h"

namespace strata {
namespace {

DecoderOptions llama() {
  return {.kind = DecoderKind::kLlama,
          .layers = 2,
          .width = 64,
          .heads = 8,
          .vocab = 100,
          .context = 32,
          .tie = false,
          .kv_heads = 2,
          .mlp_width = 96,
          .rope = {.theta = 500000, .factor = 8, .original_context = 16},
          .norm_epsilon = 1e-6};
}

DecoderOptions variant(bool qkv_bias, bool qk_norm) {
  DecoderOptions options = llama();
  options.qkv_bias = qkv_bias;
  options.qk_norm = qk_norm;
  return options;
}

DecoderOptions with(DecoderOptions options, const AttentionPattern& pattern) {
  options.attention = pattern;
  return options;
}

constexpr PatternKind kSliding = PatternKind::kSliding;

AttentionPattern bigbird() {
  return {.kind = PatternKind::kBigBird, .block = 16, .window = 32, .random_blocks = 1, .forms = 4};
}

DecoderOptions gpt(bool skip = false) {
  return {.layers = 2,
          .width = 64,
          .heads = 4,
          .vocab = 100,
          .context = 32,
          .tie = false,
          .skip = skip};
}

TEST(HuggingFaceNames, CoverEveryWeightOnceInOrder) {
  for (const DecoderOptions& options :
       {gpt(), gpt(true), llama(), variant(true, false), variant(false, true)}) {
    const Sequential model = make_model(options);
    std::map<std::string, int> seen;
    for (int layer = 0; layer < model.num_layers(); ++layer) {
      for (const WeightSpec& spec : model.layout(layer).specs) {
        const std::string ours = model.name(layer) + "." + spec.name;
        std::int64_t row = 0;
        for (const HuggingFaceTensor& tensor : hugging_face_tensors(options, ours)) {
          EXPECT_EQ(tensor.row_begin, row) << ours;
          row += tensor.rows;
          EXPECT_EQ(seen[tensor.name]++, 0) << tensor.name;
        }
        EXPECT_EQ(row, spec.shape[0]) << ours;
      }
    }
  }
}

TEST(HuggingFaceNames, MatchTransformers) {
  const std::vector<HuggingFaceTensor> up = hugging_face_tensors(gpt(), "block1.mlp.up.weight");
  EXPECT_EQ(up, (std::vector<HuggingFaceTensor>{
                    {"transformer.h.1.mlp.c_fc.weight", 0, 256, /*transposed=*/true}}));
  EXPECT_FALSE(hugging_face_tensors(gpt(), "block1.norm1.weight")[0].transposed);
  const std::vector<HuggingFaceTensor> qkv =
      hugging_face_tensors(llama(), "block0.attention.qkv.weight");
  ASSERT_EQ(qkv.size(), 3u);
  EXPECT_EQ(qkv[1], (HuggingFaceTensor{"model.layers.0.self_attn.k_proj.weight", 64, 16, false}));
  EXPECT_EQ(without_model_prefix("transformer.h.1.mlp.c_fc.weight"), "h.1.mlp.c_fc.weight");
  EXPECT_EQ(without_model_prefix("lm_head.weight"), "lm_head.weight");
  EXPECT_THROW(hugging_face_tensors(llama(), "block0.norm1.bias"), InternalError);
}

TEST(HuggingFaceNames, KeepOurNamesForOtherModels) {
  EXPECT_EQ(hugging_face_tensors(gpt(true), "block1.mlp.up.weight"),
            (std::vector<HuggingFaceTensor>{{"block1.mlp.up.weight", 0, 256}}));
}

TEST(HuggingFaceConfig, ReadsWrittenConfig) {
  DecoderOptions dropping = gpt();
  dropping.dropout = 0.1;
  for (const DecoderOptions& options :
       {gpt(), gpt(true), dropping, llama(), variant(true, false), variant(false, true),
        with(llama(), {.kind = kSliding, .window = 20}),
        with(variant(true, false), {.kind = kSliding, .window = 20}),
        with(variant(false, true), {.kind = kSliding, .window = 20}), with(gpt(), bigbird()),
        with(gpt(true), bigbird()), with(llama(), bigbird()), with(variant(true, false), bigbird()),
        with(variant(false, true), bigbird()),
        with(llama(), {.kind = kSliding, .window = 20, .dense_every = 2})}) {
    const std::string text = hugging_face_config(options);
    EXPECT_EQ(read_hugging_face_config(text, "config.json"), completed(options)) << text;
  }
}

// As transformers writes the configuration of a Mistral.
TEST(HuggingFaceConfig, ReadsWindowOfMistral) {
  const std::string text = R"({
    "model_type": "mistral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 8, "max_position_embeddings": 32, "vocab_size": 100,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
    "hidden_act": "silu", "sliding_window": )";
  const DecoderOptions sliding = read_hugging_face_config(text + "4096}", "config.json");
  EXPECT_EQ(sliding.attention, (AttentionPattern{.kind = kSliding, .window = 4096}));
  EXPECT_FALSE(read_hugging_face_config(text + "null}", "config.json").attention.sparse());
}

// Other programs would attend to all tokens.
TEST(HuggingFaceConfig, PatternsThatOthersDoNotHaveMakeTypesOfOurOwn) {
  const auto type_of = [](const DecoderOptions& options) {
    const std::string text = hugging_face_config(options), key = "\"model_type\": \"";
    const std::size_t begin = text.find(key) + key.size();
    return text.substr(begin, text.find('"', begin) - begin);
  };
  EXPECT_EQ(type_of(with(llama(), {.kind = kSliding})), "mistral");
  EXPECT_EQ(type_of(with(variant(true, false), {.kind = kSliding})), "qwen2");
  EXPECT_EQ(type_of(with(llama(), {.kind = kSliding, .dense_every = 2})), "strata-llama");
  EXPECT_EQ(type_of(with(variant(true, false), bigbird())), "strata-llama");
  EXPECT_EQ(type_of(with(gpt(), {.kind = kSliding})), "strata-gpt");
  EXPECT_EQ(type_of(gpt()), "gpt2");
}

TEST(HuggingFaceConfig, ReadsFieldsOfVersion4) {
  const DecoderOptions options = read_hugging_face_config(R"({
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 8, "max_position_embeddings": 32, "vocab_size": 100,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 500000.0,
    "rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_position_embeddings": 16}})",
                                                          "config.json");
  EXPECT_EQ(options, completed(llama()));
}

std::string refusal(const std::string& from, const std::string& to, const DecoderOptions& options) {
  std::string text = hugging_face_config(options);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  try {
    read_hugging_face_config(text, "folder/config.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(HuggingFaceConfig, RefusesUnsupportedModels) {
  const auto expect = [](const std::string& what, const std::string& in) {
    EXPECT_NE(in.find(what), std::string::npos) << in;
    EXPECT_NE(in.find("folder/config.json"), std::string::npos) << in;
  };
  expect("gelu_new", refusal("\"gelu_new\"", "\"relu\"", gpt()));
  expect("n_inner", refusal("\"n_inner\": null", "\"n_inner\": 100", gpt()));
  expect("hidden_act", refusal("\"silu\"", "\"gelu\"", llama()));
  expect("mlp_bias", refusal("\"mlp_bias\": false", "\"mlp_bias\": true", llama()));
  expect("llama3", refusal("\"rope_type\": \"llama3\"", "\"rope_type\": \"yarn\"", llama()));
  expect("mixtral", refusal("\"llama\"", "\"mixtral\"", llama()));
  expect("use_sliding_window", refusal("\"use_cache\"", "\"use_sliding_window\"", llama()));
  const DecoderOptions window = with(variant(true, false), {.kind = kSliding, .window = 20});
  expect("max_window_layers",
         refusal("\"max_window_layers\": 0", "\"max_window_layers\": 1", window));
  expect("layer_types", refusal("\"sliding_attention\"", "\"full_attention\"", window));
  expect("vocab_size", refusal("\"vocab_size\"", "\"size\"", llama()));
  expect("vocab_size", refusal("\"vocab_size\": 100", "\"vocab_size\": -1", llama()));
  expect("no JSON", refusal("{", "", llama()));
}

// As errors in recipes do: file, line and column of the value.
TEST(HuggingFaceConfig, NamesPlaceOfRefusedValue) {
  const std::string text = hugging_face_config(llama());
  const auto expect_at = [&](const std::string& key, const std::string& from,
                             const std::string& to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    const std::size_t value = text.find("\"" + key + "\": ", at) + key.size() + 4;
    const std::size_t begin = text.rfind('\n', value) + 1;
    const std::string place =
        "folder/config.json:" + std::to_string(1 + std::count(&text[0], &text[value], '\n')) + ":" +
        std::to_string(value - begin + 1);
    EXPECT_NE(refusal(from, to, llama()).find("] " + place + ": "), std::string::npos)
        << place << '\n'
        << refusal(from, to, llama());
  };
  expect_at("hidden_act", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"");
  expect_at("vocab_size", "\"vocab_size\": 100", "\"vocab_size\": -1");
  expect_at("model_type", "\"model_type\": \"llama\"", "\"model_type\": \"mixtral\"");
  // For fields that contradict each other, also inside a section.
  expect_at("num_key_value_heads", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3");
  expect_at("head_dim", "\"head_dim\": 8", "\"head_dim\": 7");
  const std::string rope =
      refusal("\"high_freq_factor\": 4.0", "\"high_freq_factor\": 0.5", llama());
  EXPECT_NE(rope.find("model.rope.high_frequency_factor"), std::string::npos) << rope;
  EXPECT_NE(rope.find("folder/config.json:"), std::string::npos) << rope;
}

TEST(ModelOptions, RefuseFieldsOfOtherKind) {
  DecoderOptions skipping = llama();
  skipping.skip = true;
  EXPECT_THROW(make_model(skipping), UserError);
  DecoderOptions grouped = gpt();
  grouped.kv_heads = 2;
  EXPECT_THROW(make_model(grouped), UserError);
  EXPECT_THROW(make_model(variant(true, true)), UserError);
  DecoderOptions uneven = llama();
  uneven.kv_heads = 3;
  EXPECT_THROW(make_model(uneven), UserError);
}

TEST(ModelOptions, ReplaceZerosByDefaults) {
  const DecoderOptions options = completed({.kind = DecoderKind::kLlama, .width = 384, .heads = 6});
  EXPECT_EQ(options.kv_heads, 6);
  EXPECT_EQ(options.head_width, 64);
  EXPECT_EQ(options.mlp_width, 1024);
}

}  // namespace
}  // namespace strata
