#include "strata/models/decoder_options.h"

#include "strata/base/enum_names.h"
#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/models/attention_options.h"

namespace strata {
namespace {

// Products of two of them, times bytes and a small factor, stay below 2^63.
constexpr double kMostLayers = 1 << 20;
constexpr double kMostWidth = 1 << 24;
constexpr double kMostTokens = 0x7fffffff;

constexpr ErrorSource kDecoderErrors{"models.options"};

std::string text(bool value) { return value ? "true" : "false"; }
std::string text(std::int64_t value) { return std::to_string(value); }
std::string text(double value) { return format_double_exactly(value); }

// Refuses a field that the kind does not have, unless its value is `expected`, the default.
template <typename T>
void require_unset(DecoderKind kind, const std::string& field, T expected, T got,
                   const std::string& fix) {
  if (got == expected) return;
  throw kDecoderErrors.user(
      "model." + field, "a field that model.kind = " + std::string(name_of(kind)) + " doesn't have",
      text(expected), text(got), fix);
}

void describe_llama(OptionSet& set, const std::string& prefix, DecoderOptions& options) {
  set.add(prefix + ".kv_heads", &options.kv_heads,
          {.help = "llama: heads of keys and values, each shared by several query heads; 0: as "
                   "many as heads.",
           .unit = "heads",
           .minimum = 0,
           .maximum = kMostWidth});
  set.add(prefix + ".head_width", &options.head_width,
          {.help = "llama: width of a head; 0: width / heads.",
           .unit = "elements",
           .minimum = 0,
           .maximum = kMostWidth});
  set.add(prefix + ".mlp_width", &options.mlp_width,
          {.help = "llama: width inside the MLP; 0: 8/3 of the width, rounded up to a multiple of "
                   "64 (gpt: always 4 times the width).",
           .unit = "elements",
           .minimum = 0,
           .maximum = kMostWidth});
  set.add(prefix + ".norm_epsilon", &options.norm_epsilon,
          {.help = "Added to the mean square in norms; gpt: always 1e-5.", .minimum = 0});
  set.add(prefix + ".qkv_bias", &options.qkv_bias,
          {.help = "llama: whether queries, keys and values have biases (Qwen 2)."});
  set.add(prefix + ".qk_norm", &options.qk_norm,
          {.help = "llama: whether each head's queries and keys are normalised (Qwen 3)."});
}

void describe_rope(OptionSet& set, const std::string& prefix, RopeOptions& rope) {
  set.add(prefix + ".theta", &rope.theta,
          {.help = "llama: base of the rotary positions' wavelengths.", .minimum = 1});
  set.add(prefix + ".factor", &rope.factor,
          {.help = "llama: stretches long wavelengths by this, as Llama 3.1 does; 1: none.",
           .unit = "ratio",
           .minimum = 1});
  set.add(prefix + ".low_frequency_factor", &rope.low_frequency_factor,
          {.help = "llama: pairs with fewer turns in the original context are stretched in full.",
           .unit = "turns",
           .minimum = 0});
  set.add(prefix + ".high_frequency_factor", &rope.high_frequency_factor,
          {.help = "llama: pairs with more turns in the original context are left alone.",
           .unit = "turns",
           .minimum = 0});
  set.add(prefix + ".original_context", &rope.original_context,
          {.help = "llama: context before the stretching.",
           .unit = "tokens",
           .minimum = 1,
           .maximum = kMostTokens});
}

DecoderOptions completed_gpt(DecoderOptions o) {
  const DecoderOptions unset;
  const auto require = [&](const std::string& field, auto expected, auto got,
                           const std::string& fix =
                               "set model.kind to llama, or leave the field out") {
    require_unset(DecoderKind::kGpt, field, expected, got, fix);
  };
  // Values that every GPT has are accepted.
  if (o.kv_heads != o.heads) require("kv_heads", unset.kv_heads, o.kv_heads);
  if (o.head_width * o.heads != o.width) require("head_width", unset.head_width, o.head_width);
  if (o.mlp_width != 4 * o.width) require("mlp_width", unset.mlp_width, o.mlp_width);
  require("rope.theta", unset.rope.theta, o.rope.theta);
  require("rope.factor", unset.rope.factor, o.rope.factor);
  require("rope.low_frequency_factor", unset.rope.low_frequency_factor,
          o.rope.low_frequency_factor);
  require("rope.high_frequency_factor", unset.rope.high_frequency_factor,
          o.rope.high_frequency_factor);
  require("rope.original_context", unset.rope.original_context, o.rope.original_context);
  require("norm_epsilon", unset.norm_epsilon, o.norm_epsilon);
  require("qkv_bias", unset.qkv_bias, o.qkv_bias, "leave it out: a gpt always has these biases");
  require("qk_norm", unset.qk_norm, o.qk_norm);
  o.kv_heads = o.heads;
  o.head_width = o.width / o.heads;
  o.mlp_width = 4 * o.width;
  return o;
}

DecoderOptions completed_llama(DecoderOptions o) {
  require_unset(DecoderKind::kLlama, "skip", false, o.skip,
                "set model.kind to gpt, or leave the field out");
  require_unset(DecoderKind::kLlama, "dropout", 0.0, o.dropout, "set model.dropout to 0");
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.heads % o.kv_heads != 0)
    throw kDecoderErrors.user("model.kv_heads",
                              "the query heads do not divide among the key and value heads",
                              "a divisor of " + std::to_string(o.heads), std::to_string(o.kv_heads),
                              "set model.kv_heads to " + std::to_string(o.heads));
  if (o.head_width == 0) o.head_width = o.width / o.heads;
  if (o.head_width % 2 != 0)
    throw kDecoderErrors.user("model.head_width", "rotary positions turn pairs of elements",
                              "an even width of a head", std::to_string(o.head_width),
                              "set model.head_width to " + std::to_string(o.head_width + 1));
  if (o.mlp_width == 0) o.mlp_width = (8 * o.width + 3 * 64 - 1) / (3 * 64) * 64;
  if (o.qkv_bias && o.qk_norm)
    throw kDecoderErrors.user("model.qk_norm", "biases and norms of queries and keys together",
                              "one of the two", "both", "leave model.qkv_bias out");
  if (o.rope.factor != 1 && o.rope.high_frequency_factor <= o.rope.low_frequency_factor)
    throw kDecoderErrors.user("model.rope.high_frequency_factor",
                              "not above model.rope.low_frequency_factor",
                              "more than " + std::to_string(o.rope.low_frequency_factor),
                              std::to_string(o.rope.high_frequency_factor),
                              "set model.rope.high_frequency_factor to 4 times the low one");
  return o;
}

}  // namespace

const char* name_of(DecoderKind kind) {
  using enum DecoderKind;
  static constexpr EnumNames<DecoderKind> kNames{{kGpt, "gpt"}, {kLlama, "llama"}};
  return kNames[kind];
}

void describe(OptionSet& set, const std::string& prefix, DecoderOptions& options) {
  set.add(prefix + ".kind", &options.kind, all_named<DecoderKind>(),
          {.help = "Architecture; llama covers Mistral, Qwen 2 and Qwen 3."});
  set.add(prefix + ".layers", &options.layers,
          {.help = "Transformer blocks.", .unit = "layers", .minimum = 1, .maximum = kMostLayers});
  set.add(
      prefix + ".width", &options.width,
      {.help = "Width of the residual stream; multiples of 16 make bits independent of threads.",
       .unit = "elements",
       .minimum = 1,
       .maximum = kMostWidth});
  set.add(prefix + ".heads", &options.heads,
          {.help = "Attention heads; must divide the width.",
           .unit = "heads",
           .minimum = 1,
           .maximum = kMostWidth});
  set.add(prefix + ".vocab", &options.vocab,
          {.help = "Vocabulary.", .unit = "tokens", .minimum = 1, .maximum = kMostTokens});
  set.add(prefix + ".context", &options.context,
          {.help = "Longest sample, and the length of training samples.",
           .unit = "tokens",
           .minimum = 1,
           .maximum = kMostTokens});
  set.add(prefix + ".dropout", &options.dropout,
          {.help = "Probability that an activation is dropped in training; gpt alone.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 0.99});
  set.add(prefix + ".tie", &options.tie,
          {.help = "Whether the head uses the token embedding as its weight."});
  set.add(prefix + ".skip", &options.skip,
          {.help = "Whether the embedding is added once more before the head, across all stages; "
                   "gpt alone."});
  describe(set, prefix + ".attention", options.attention);
  describe_llama(set, prefix, options);
  describe_rope(set, prefix + ".rope", options.rope);
}

namespace {

DecoderOptions completed_by_name(const DecoderOptions& options) {
  if (options.heads < 1 || (options.head_width == 0 && options.width % options.heads != 0))
    throw kDecoderErrors.user("model.heads", "the width does not divide among the heads",
                              "a divisor of " + std::to_string(options.width),
                              std::to_string(options.heads),
                              "set model.heads to a divisor of model.width");
  check_pattern(options.attention,
                {.layers = options.layers, .heads = options.heads, .context = options.context});
  return options.kind == DecoderKind::kLlama ? completed_llama(options) : completed_gpt(options);
}

}  // namespace

DecoderOptions completed(DecoderOptions options, const FieldPlace& place) {
  try {
    return completed_by_name(options);
  } catch (const UserError& error) {
    if (!place) throw;
    ErrorText text = error.text();
    text.what = text.where + ": " + text.what;
    text.where = place(error.text().where);
    throw UserError(text);
  }
}

// The embedding, the head and, with a skip connection, the layer that adds it.
std::int64_t num_layers(const DecoderOptions& options) {
  return options.layers + 2 + (options.skip ? 1 : 0);
}

}  // namespace strata
