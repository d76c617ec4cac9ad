/// Sizes a decoder: a GPT, or a Llama with its relatives Qwen 2 (qkv_bias) and Qwen 3 (qk_norm).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "strata/base/options.h"
#include "strata/nn/ops/attention.h"
#include "strata/nn/primitives/attention_pattern.h"

namespace strata {

enum class DecoderKind : std::uint8_t { kGpt, kLlama };
const char* name_of(DecoderKind kind);  ///< "gpt", "llama"

struct DecoderOptions {
  DecoderKind kind = DecoderKind::kGpt;
  std::int64_t layers = 6;
  std::int64_t width = 384;
  std::int64_t heads = 6;
  std::int64_t vocab = 256;
  std::int64_t context = 256;
  double dropout = 0;
  bool tie = true;    ///< the head uses the token embedding
  bool skip = false;  ///< the embedding's output is added again before the head
  AttentionPattern attention;
  // Fields of llama only
  std::int64_t kv_heads = 0;    ///< 0: heads
  std::int64_t head_width = 0;  ///< 0: width / heads
  std::int64_t mlp_width = 0;   ///< 0: 8/3 width, rounded up to a multiple of 64; gpt: 4 width
  RopeOptions rope;
  double norm_epsilon = 1e-5;
  bool qkv_bias = false;
  bool qk_norm = false;
  friend bool operator==(const DecoderOptions&, const DecoderOptions&) = default;
};

void describe(OptionSet& set, const std::string& prefix, DecoderOptions& options);

/// The number of layers that make_model() (model.h) makes: the blocks and the layers before and
/// after them.
std::int64_t num_layers(const DecoderOptions& options);

/// Returns the place of a field ("model.heads") in the recipe: "recipe.yaml:3:9".
using FieldPlace = std::function<std::string(const std::string& field)>;

/// The options with every 0 replaced by the size that it stands for.
/// Errors  UserError: fields that contradict the kind or each other, with their `place`, if there
///         is one, or name.
DecoderOptions completed(DecoderOptions options, const FieldPlace& place = {});

}  // namespace strata
