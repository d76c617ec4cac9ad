// A field that requests what we do not have is refused, not ignored: otherwise such weights would
// run and produce other text.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/base/json_place.h"
#include "strata/base/user_text.h"
#include "strata/models/attention_options.h"
#include "strata/models/hugging_face.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr std::int64_t kGpt2Vocabulary = 50257;
// No models of Hugging Face: a GPT with a skip or a pattern, a Llama with a pattern.
constexpr const char* kOurGpt = "strata-gpt";
constexpr const char* kOurLlama = "strata-llama";
constexpr const char* kPattern = "attention_pattern";
// What transformers takes if a Mistral's config.json has no such field.
constexpr std::int64_t kMistralWindow = 4096, kMistralKeyHeads = 8;
constexpr const char* kSlidingLayer = "sliding_attention";  // in layer_types
constexpr double kGptEpsilon = 1e-5;
// No model is larger than these; larger numbers would only overflow later.
constexpr std::int64_t kMaxLayers = 1'000'000;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

json gpt2_config(const DecoderOptions& o) {
  const json end = o.vocab == kGpt2Vocabulary ? json(kGpt2Vocabulary - 1) : json(nullptr);
  const bool ours = o.skip || o.attention.sparse();
  return {{"model_type", ours ? kOurGpt : "gpt2"},
          {"architectures", json::array({ours ? "StrataGpt" : "GPT2LMHeadModel"})},
          {"n_layer", o.layers},
          {"n_head", o.heads},
          {"n_embd", o.width},
          {"n_positions", o.context},
          {"n_ctx", o.context},
          {"n_inner", nullptr},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", kGptEpsilon},
          {"resid_pdrop", o.dropout},
          {"embd_pdrop", o.dropout},
          {"attn_pdrop", 0.0},
          {"bos_token_id", end},
          {"eos_token_id", end}};
}

// Whether Hugging Face has such a Llama or Qwen: all tokens, or in all layers a sliding window.
bool is_theirs(const AttentionPattern& pattern) {
  return !pattern.sparse() || (pattern.kind == PatternKind::kSliding && pattern.dense_every == 0);
}

struct LlamaName {
  std::string type, architecture;
};
LlamaName llama_name(const DecoderOptions& o) {
  if (!is_theirs(o.attention)) return {kOurLlama, "StrataLlama"};
  if (o.qkv_bias) return {"qwen2", "Qwen2ForCausalLM"};
  if (o.qk_norm) return {"qwen3", "Qwen3ForCausalLM"};
  if (o.attention.sparse()) return {"mistral", "MistralForCausalLM"};
  return {"llama", "LlamaForCausalLM"};
}

// How a sliding window is stated.
json window_config(const DecoderOptions& o, const std::string& type) {
  if (o.attention.kind != PatternKind::kSliding || type == kOurLlama) return json::object();
  json config = {{"sliding_window", o.attention.window}};
  if (type != "mistral")
    config.update({{"use_sliding_window", true},
                   {"max_window_layers", 0},
                   {"layer_types", std::vector<std::string>(o.layers, kSlidingLayer)}});
  return config;
}

json llama_config(const DecoderOptions& o) {
  const auto [type, architecture] = llama_name(o);
  json rope = {{"rope_type", "default"}, {"rope_theta", o.rope.theta}};
  json scaling = nullptr;  // for transformers 4
  if (o.rope.factor != 1) {
    scaling = {{"rope_type", "llama3"},
               {"factor", o.rope.factor},
               {"low_freq_factor", o.rope.low_frequency_factor},
               {"high_freq_factor", o.rope.high_frequency_factor},
               {"original_max_position_embeddings", o.rope.original_context}};
    rope.update(scaling);
  }
  json config = {{"model_type", type},
                 {"architectures", json::array({architecture})},
                 {"hidden_size", o.width},
                 {"intermediate_size", o.mlp_width},
                 {"num_hidden_layers", o.layers},
                 {"num_attention_heads", o.heads},
                 {"num_key_value_heads", o.kv_heads},
                 {"head_dim", o.head_width},
                 {"max_position_embeddings", o.context},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", o.norm_epsilon},
                 {"rope_parameters", rope},
                 {"rope_theta", o.rope.theta},
                 {"rope_scaling", scaling},
                 {"attention_dropout", 0.0},
                 {"bos_token_id", nullptr},
                 {"eos_token_id", nullptr}};
  if (type == "llama") config["mlp_bias"] = false;
  if (!o.qkv_bias && type != "mistral") config["attention_bias"] = false;
  config.update(window_config(o, type));
  return config;
}

// Reads fields and refuses values that request what we do not have.
class Config {
 public:
  Config(const std::string& text, std::string where) : where_(std::move(where)) {
    const FileUse use{.operation = "models.hugging_face", .fix = "take a complete config.json"};
    config_ = JsonDocument::parse(text, where_, use).root().value();
    text_ = text;
  }

  bool has(const std::string& key) const {
    return config_.contains(key) && !config_[key].is_null();
  }

  template <typename T>
  T required(const std::string& key) const {
    if (!has(key))
      refuse("the field '" + key + "' is missing", "a number", "nothing",
             "take the config.json that came with the weights");
    return read<T>(config_[key], key);
  }

  // Whether the field has exactly this value.
  bool is(const std::string& key, const json& value) const {
    return config_.contains(key) && config_[key] == value;
  }

  template <typename T>
  T optional(const std::string& key, T otherwise) const {
    return has(key) ? read<T>(config_[key], key) : otherwise;
  }

  // Requires that the field is absent or one of these values; the first value is the default.
  template <typename T>
  void require(const std::string& key, const std::vector<T>& known) const {
    const T value = optional<T>(key, known[0]);
    if (std::find(known.begin(), known.end(), value) != known.end()) return;
    refuse("'" + key + "' asks for a model that Strata doesn't have", json(known).dump(),
           excerpt(json(value).dump()), "take weights of a model without it", key);
  }

  Config section(const std::string& key) const {
    Config inside = *this;
    inside.config_ = has(key) ? config_[key] : json::object();
    if (!inside.config_.is_object())
      refuse("the field '" + key + "' is of another type", "an object",
             excerpt(config_[key].dump()), "take the config.json that came with the weights", key);
    inside.keys_.push_back(key);
    return inside;
  }

  // The place of a field that is present: "folder/config.json:3:9".
  std::string place(const std::string& key) const {
    std::vector<std::string> keys = keys_;
    if (!key.empty()) keys.push_back(key);
    return keys.empty() ? where_ : where_ + json_place(text_, keys);
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& expected,
                           const std::string& got, const std::string& fix,
                           const std::string& key = "") const {
    throw UserError({.operation = "models.hugging_face",
                     .where = place(key),
                     .what = what,
                     .expected = expected,
                     .got = got,
                     .fix = fix});
  }

 private:
  template <typename T>
  T read(const json& value, const std::string& key) const {
    bool fits = value.is_string();
    if constexpr (std::is_same_v<T, bool>) {
      fits = value.is_boolean();
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      const std::int64_t most =
          key == "n_layer" || key == "num_hidden_layers" ? kMaxLayers : kMaxSize;
      fits = value.is_number_integer() && value.get<std::int64_t>() > 0 &&
             value.get<std::int64_t>() <= most;
    } else if constexpr (std::is_same_v<T, double>) {
      fits = value.is_number();
    }
    if (!fits)
      refuse("the field '" + key + "' has a value that it can't have", "a value of its kind",
             excerpt(value.dump()), "take the config.json that came with the weights", key);
    return value.get<T>();
  }

  std::string where_, text_;
  std::vector<std::string> keys_;  // keys of the section
  json config_;
};

// The pattern of one of our models.
AttentionPattern read_our_pattern(const Config& config) {
  if (!config.has(kPattern)) return {};
  return read_pattern(config.required<std::string>(kPattern), config.place(kPattern));
}

DecoderOptions read_gpt2(const Config& config, bool ours) {
  config.require<std::string>("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.require<double>("layer_norm_epsilon", {kGptEpsilon});
  config.require<bool>("scale_attn_weights", {true});
  config.require<bool>("scale_attn_by_inverse_layer_idx", {false});
  config.require<bool>("add_cross_attention", {false});
  const auto width = config.required<std::int64_t>("n_embd");
  config.require<std::int64_t>("n_inner", {4 * width});
  const auto dropout = config.optional<double>("resid_pdrop", 0.1);
  const bool one_dropout = config.optional<double>("embd_pdrop", 0.1) == dropout &&
                           config.optional<double>("attn_pdrop", 0.1) == 0;
  return {.kind = DecoderKind::kGpt,
          .layers = config.required<std::int64_t>("n_layer"),
          .width = width,
          .heads = config.required<std::int64_t>("n_head"),
          .vocab = config.required<std::int64_t>("vocab_size"),
          .context = config.required<std::int64_t>("n_positions"),
          .dropout = one_dropout ? dropout : 0,
          .tie = config.optional<bool>("tie_word_embeddings", true),
          .skip = ours && config.optional<bool>("skip", true),
          .attention = ours ? read_our_pattern(config) : AttentionPattern()};
}

// Version 5 has all fields in one section; version 4 has the base outside of it.
Config rope_of(const Config& config) {
  return config.section(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
}

RopeOptions read_rope(const Config& config) {
  const Config rope = rope_of(config);
  const std::string type =
      rope.optional<std::string>("rope_type", rope.optional<std::string>("type", "default"));
  const double theta = config.optional<double>("rope_theta", 10000);
  RopeOptions options{.theta = rope.optional<double>("rope_theta", theta)};
  if (type == "default") return options;
  if (type != "llama3")
    rope.refuse("rotary positions that Strata doesn't have", "default, llama3", type,
                "take weights of a model without them",
                rope.has("rope_type") ? "rope_type" : "type");
  options.factor = rope.required<double>("factor");
  options.low_frequency_factor = rope.required<double>("low_freq_factor");
  options.high_frequency_factor = rope.required<double>("high_freq_factor");
  options.original_context = rope.required<std::int64_t>("original_max_position_embeddings");
  return options;
}

// Mistral, and Qwen with `use_sliding_window`: the same window in all layers.
AttentionPattern read_window(const Config& config, const std::string& type) {
  if (type == kOurLlama) return read_our_pattern(config);
  if (type == "llama") config.require<bool>("use_sliding_window", {false});
  const bool slides = type == "mistral" ? !config.is("sliding_window", nullptr)
                                        : config.optional<bool>("use_sliding_window", false);
  if (!slides) return {};
  const auto layers = config.required<std::int64_t>("num_hidden_layers");
  const std::vector<std::string> all(layers, kSlidingLayer);
  if (type != "mistral" && !config.is("max_window_layers", 0))
    config.refuse("the first layers, 'max_window_layers', have no sliding window", "0",
                  config.has("max_window_layers") ? "another number" : "none",
                  "take weights of a model without it", "max_window_layers");
  if (config.has("layer_types") && !config.is("layer_types", all))
    config.refuse("'layer_types' lists layers without a sliding window",
                  "sliding_attention for all layers", "another list",
                  "take weights of a model without it", "layer_types");
  return {.kind = PatternKind::kSliding,
          .window = type == "mistral"
                        ? config.optional<std::int64_t>("sliding_window", kMistralWindow)
                        : config.required<std::int64_t>("sliding_window")};
}

DecoderOptions read_llama(const Config& config, const std::string& type) {
  config.require<std::string>("hidden_act", {"silu", "swish"});
  config.require<bool>("attention_bias", {false});
  config.require<bool>("mlp_bias", {false});
  const auto heads = config.required<std::int64_t>("num_attention_heads");
  return {.kind = DecoderKind::kLlama,
          .layers = config.required<std::int64_t>("num_hidden_layers"),
          .width = config.required<std::int64_t>("hidden_size"),
          .heads = heads,
          .vocab = config.required<std::int64_t>("vocab_size"),
          .context = config.required<std::int64_t>("max_position_embeddings"),
          .tie = config.optional<bool>("tie_word_embeddings", false),
          .attention = read_window(config, type),
          .kv_heads = config.optional<std::int64_t>("num_key_value_heads",
                                                    type == "mistral" ? kMistralKeyHeads : heads),
          .head_width = config.optional<std::int64_t>("head_dim", 0),
          .mlp_width = config.required<std::int64_t>("intermediate_size"),
          .rope = read_rope(config),
          .norm_epsilon = config.optional<double>("rms_norm_eps", 1e-6),
          .qkv_bias = type == "qwen2" || config.is("qkv_bias", true),
          .qk_norm = type == "qwen3" || config.is("qk_norm", true)};
}

// Hugging Face's name of one of our fields.
std::string their_name(const std::string& field, bool gpt2) {
  if (field == "model.heads") return gpt2 ? "n_head" : "num_attention_heads";
  if (field == "model.kv_heads") return "num_key_value_heads";
  return field == "model.head_width" ? "head_dim" : "";
}

}  // namespace

std::string hugging_face_config(const DecoderOptions& options) {
  const DecoderOptions o = completed(options);
  json config = o.kind == DecoderKind::kLlama ? llama_config(o) : gpt2_config(o);
  config["vocab_size"] = o.vocab;
  config["tie_word_embeddings"] = o.tie;
  config["initializer_range"] = 0.02;
  config["torch_dtype"] = "float32";
  config["dtype"] = "float32";
  config["use_cache"] = true;
  const std::string type = config["model_type"];
  if (type == kOurGpt) config["skip"] = o.skip;
  if (type == kOurLlama) config.update({{"qkv_bias", o.qkv_bias}, {"qk_norm", o.qk_norm}});
  if (o.attention.sparse() && (type == kOurGpt || type == kOurLlama))
    config[kPattern] = pattern_text(o.attention);
  return config.dump(2) + "\n";
}

DecoderOptions read_hugging_face_config(const std::string& json_text, const std::string& where) {
  const Config config(json_text, where);
  const auto type = config.required<std::string>("model_type");
  const bool gpt2 = type == "gpt2" || type == kOurGpt;
  const auto place = [&](const std::string& field) {
    if (field.starts_with("model.rope.")) return rope_of(config).place("high_freq_factor");
    return config.place(their_name(field, gpt2));
  };
  if (gpt2) return completed(read_gpt2(config, type == kOurGpt), place);
  if (type == "llama" || type == "mistral" || type == "qwen2" || type == "qwen3" ||
      type == kOurLlama)
    return completed(read_llama(config, type), place);
  config.refuse("a kind of model that Strata doesn't have", "gpt2, llama, mistral, qwen2, qwen3",
                type, "take weights of one of these", "model_type");
}

}  // namespace strata
