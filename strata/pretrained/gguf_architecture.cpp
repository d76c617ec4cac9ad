// A key of the architecture that is neither translated nor known to change nothing is refused.
#include "strata/pretrained/gguf_architecture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "strata/pretrained/gguf_blocks.h"
#include "strata/pretrained/gguf_weights.h"

namespace strata {
namespace {

using nlohmann::ordered_json;
using Names = std::map<std::string, std::string>;

constexpr const char* kArchitecture = "general.architecture";
constexpr const char* kTokens = "token_embd.weight";
constexpr const char* kHead = "output.weight";
constexpr const char* kRopeFactors = "rope_freqs.weight";
constexpr std::int64_t kMaxContext = std::int64_t{1} << 31;

constexpr const char* kOtherModel = "take weights of a model without it";

const Names kGptOutside = {{kTokens, "transformer.wte.weight"},
                           {"position_embd.weight", "transformer.wpe.weight"},
                           {"output_norm.weight", "transformer.ln_f.weight"},
                           {"output_norm.bias", "transformer.ln_f.bias"},
                           {kHead, "lm_head.weight"}};
const Names kGptInside = {{"attn_norm", "ln_1"},          {"attn_qkv", "attn.c_attn"},
                          {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"},
                          {"ffn_up", "mlp.c_fc"},         {"ffn_down", "mlp.c_proj"}};
const Names kLlamaOutside = {{kTokens, "model.embed_tokens.weight"},
                             {"output_norm.weight", "model.norm.weight"},
                             {kHead, "lm_head.weight"}};
const Names kLlamaInside = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};
const Names kHeadNorms = {{"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}};

// "blk.3.attn_q.weight" in parts; an empty module outside of blocks.
struct TensorName {
  std::string block, module, kind;
};

TensorName parse(const std::string& tensor) {
  const std::size_t first = tensor.find('.'), second = tensor.find('.', first + 1),
                    last = tensor.rfind('.');
  if (!tensor.starts_with("blk.") || second == std::string::npos || last <= second) return {};
  const std::string block = tensor.substr(first + 1, second - first - 1);
  const bool number = !block.empty() && block.size() < 8 &&
                      block.find_first_not_of("0123456789") == std::string::npos;
  if (!number) return {};
  return {block, tensor.substr(second + 1, last - second - 1), tensor.substr(last)};
}

// The factor by which Llama 3 slows down a pair of dimensions that turns by `frequency` a position.
double llama3_factor(double frequency, double factor, double original_context) {
  constexpr double kLow = 1, kHigh = 4;
  const double turns = original_context * frequency / (2 * std::numbers::pi);
  if (turns > kHigh) return 1;
  if (turns < kLow) return factor;
  const double smooth = (turns - kLow) / (kHigh - kLow);
  return 1 / ((1 - smooth) / factor + smooth);
}

// Files have Llama 3's scaling as a table of factors. Its parameters are found by trying those that
// the models have: Llama 3.1, 3.2 and 3.3 were all trained in 8192 positions before.
ordered_json llama3_scaling(const GgufFile& file, const GgufTensor& tensor, double theta,
                            std::int64_t head_width) {
  constexpr double kOriginalContext = 8192;
  if (find_block_type(tensor.type) == nullptr || tensor.numel() != head_width / 2)
    file.refuse(kRopeFactors, "the table of rotary factors has another size or type",
                std::to_string(head_width / 2) + " factors of F32", std::to_string(tensor.numel()),
                kOtherModel);
  std::vector<float> factors(static_cast<std::size_t>(tensor.numel()));
  read_elements(file, tensor, 0, factors);
  const double factor = factors.empty() ? 1 : *std::ranges::max_element(factors);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_width));
    const double known = llama3_factor(frequency, factor, kOriginalContext);
    if (!(std::abs(factors[i] - known) <= 1e-3 * known))
      file.refuse(kRopeFactors, "rotary positions that Strata doesn't have",
                  "none, or the factors of Llama 3 (" + std::to_string(known) + ")",
                  std::to_string(factors[i]) + " for pair " + std::to_string(i), kOtherModel);
  }
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", static_cast<std::int64_t>(kOriginalContext)}};
}

// Reads the keys of an architecture, and refuses in the end those that were not read.
class Keys {
 public:
  Keys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix) + ".") {
    for (const char* name : {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned",
                             "rope.scaling.original_context_length"})
      read_.insert(prefix_ + name);  // without effect on these models
  }

  bool has(const std::string& name) const { return file_.has(prefix_ + name); }

  std::int64_t integer(const std::string& name, std::int64_t maximum = INT32_MAX) {
    return file_.integer(noted(name), 1, maximum);
  }
  std::int64_t integer_or(const std::string& name, std::int64_t otherwise) {
    return has(name) ? integer(name) : otherwise;
  }
  double real(const std::string& name) { return file_.real(noted(name)); }

  // Requires that the key is absent or has this value.
  void require(const std::string& name, const GgufValue& known) {
    const std::string key = noted(name);
    const auto found = file_.metadata().find(key);
    if (found != file_.metadata().end() && found->second != known) refuse(key);
  }

  void refuse_others() const {
    for (const auto& [key, value] : file_.metadata())
      if (key.starts_with(prefix_) && !read_.contains(key)) refuse(key);
  }

 private:
  std::string noted(const std::string& name) { return *read_.insert(prefix_ + name).first; }
  [[noreturn]] void refuse(const std::string& key) const {
    file_.refuse(key, "a key asks for a model that Strata doesn't have", "no such key",
                 "another value", kOtherModel);
  }

  const GgufFile& file_;
  std::string prefix_;
  std::set<std::string> read_;
};

}  // namespace

GgufArchitecture::GgufArchitecture(const GgufFile& file)
    : file_(file), name_(file.text(kArchitecture)) {
  for (const char* known : {"llama", "qwen2", "qwen3", "gpt2"})
    if (name_ == known) return;
  file.refuse(kArchitecture, "a kind of model that Strata doesn't have",
              "llama, qwen2, qwen3 or gpt2", name_, "take weights of one of these");
}

std::optional<std::string> GgufArchitecture::hugging_face_name(const std::string& tensor) const {
  const bool gpt = name_ == "gpt2";
  if (tensor == kRopeFactors && !gpt) return std::nullopt;
  const Names& outside = gpt ? kGptOutside : kLlamaOutside;
  if (const auto found = outside.find(tensor); found != outside.end()) return found->second;
  const auto [block, module, kind] = parse(tensor);
  const bool qkv = module == "attn_q" || module == "attn_k" || module == "attn_v";
  const bool bias = kind == ".bias" && (gpt || (name_ == "qwen2" && qkv));
  const Names& inside = name_ == "qwen3" && kHeadNorms.contains(module) ? kHeadNorms
                        : gpt                                           ? kGptInside
                                                                        : kLlamaInside;
  const auto found = inside.find(module);
  if (found == inside.end() || (kind != ".weight" && !bias))
    file_.refuse(tensor, "the file has a tensor that its architecture doesn't have here",
                 "the tensors of " + name_, "one more", kOtherModel);
  return (gpt ? "transformer.h." : "model.layers.") + block + "." + found->second + kind;
}

std::int64_t GgufArchitecture::head_width() const {
  if (const std::string width = key("attention.key_length"); file_.has(width))
    return file_.integer(width, 1);
  return file_.integer(key("embedding_length"), 1) / file_.integer(key("attention.head_count"), 1);
}

std::int64_t GgufArchitecture::interleaved_rows(const std::string& tensor) const {
  const std::string module = parse(tensor).module;
  const bool turned = module == "attn_q" || module == "attn_k";
  return name_ == "llama" && turned ? std::max<std::int64_t>(head_width(), 1) : 0;
}

std::string GgufArchitecture::config_json() const {
  const auto tokens = file_.tensors().find(kTokens);
  if (tokens == file_.tensors().end())
    file_.refuse(kTokens, "the file lacks a tensor", kTokens, "none");
  Keys keys(file_, name_);
  ordered_json config = {{"model_type", name_},
                         {"vocab_size", tokens->second.shape[0]},
                         {"tie_word_embeddings", !file_.tensors().contains(kHead)}};
  if (name_ == "gpt2") {
    config.update({{"n_embd", keys.integer("embedding_length")},
                   {"n_layer", keys.integer("block_count")},
                   {"n_head", keys.integer("attention.head_count")},
                   {"n_positions", keys.integer("context_length", kMaxContext)},
                   {"n_inner", keys.integer("feed_forward_length")},
                   {"layer_norm_epsilon", keys.real("attention.layer_norm_epsilon")}});
    keys.refuse_others();
    return config.dump();
  }
  const std::int64_t heads = keys.integer("attention.head_count");
  const std::int64_t width = head_width();
  const double theta = keys.has("rope.freq_base") ? keys.real("rope.freq_base") : 10000.0;
  config.update({{"hidden_size", keys.integer("embedding_length")},
                 {"intermediate_size", keys.integer("feed_forward_length")},
                 {"num_hidden_layers", keys.integer("block_count")},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", keys.integer_or("attention.head_count_kv", heads)},
                 {"head_dim", keys.integer_or("attention.key_length", width)},
                 {"max_position_embeddings", keys.integer("context_length", kMaxContext)},
                 {"rms_norm_eps", keys.real("attention.layer_norm_rms_epsilon")},
                 {"rope_theta", theta}});
  keys.require("attention.value_length", width);
  keys.require("rope.dimension_count", width);
  keys.require("rope.scaling.type", std::string("none"));
  keys.require("rope.scaling.factor", 1.0f);
  keys.require("attention.causal", true);
  keys.require("expert_count", std::int64_t{0});
  keys.require("expert_used_count", std::int64_t{0});
  keys.refuse_others();
  if (const auto factors = file_.tensors().find(kRopeFactors); factors != file_.tensors().end())
    config["rope_scaling"] = llama3_scaling(file_, factors->second, theta, width);
  return config.dump();
}

}  // namespace strata
