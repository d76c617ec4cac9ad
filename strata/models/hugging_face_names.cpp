// The names are tables; only the packed projections of queries, keys and values become three
// tensors.
#include <map>

#include "strata/base/errors.h"
#include "strata/models/hugging_face.h"

namespace strata {
namespace {

constexpr const char* kBlock = "block";

// "block3.mlp.up.weight" -> {3, "mlp.up.weight"}; {-1, name} outside blocks.
struct PlaceOfWeight {
  std::int64_t block = -1;
  std::string weight;
};

PlaceOfWeight place_of(const std::string& name) {
  const std::string prefix = kBlock;
  const std::size_t dot = name.find('.');
  if (!name.starts_with(prefix) || dot == std::string::npos) return {.weight = name};
  return {std::stoll(name.substr(prefix.size(), dot - prefix.size())), name.substr(dot + 1)};
}

using Names = std::map<std::string, std::string>;

const std::string& find(const Names& names, const std::string& weight, const std::string& whole) {
  const auto found = names.find(weight);
  if (found == names.end())
    throw InternalError(
        {.operation = "models.hugging_face", .where = whole, .what = "no weight of this model"});
  return found->second;
}

std::vector<HuggingFaceTensor> gpt2_tensors(const DecoderOptions& o, const std::string& name) {
  static const Names outside = {{"embed.tokens.weight", "transformer.wte.weight"},
                                {"embed.positions.weight", "transformer.wpe.weight"},
                                {"head.norm.weight", "transformer.ln_f.weight"},
                                {"head.norm.bias", "transformer.ln_f.bias"},
                                {"head.weight", "lm_head.weight"}};
  static const Names inside = {
      {"norm1", "ln_1"}, {"attention.qkv", "attn.c_attn"}, {"attention.out", "attn.c_proj"},
      {"norm2", "ln_2"}, {"mlp.up", "mlp.c_fc"},           {"mlp.down", "mlp.c_proj"}};
  const std::int64_t w = o.width;
  const std::map<std::string, std::int64_t> rows = {{"embed.tokens.weight", o.vocab},
                                                    {"embed.positions.weight", o.context},
                                                    {"head.weight", o.vocab},
                                                    {"attention.qkv", 3 * w},
                                                    {"mlp.up", 4 * w}};
  const PlaceOfWeight place = place_of(name);
  if (place.block < 0) {
    const auto size = rows.find(name);
    return {{find(outside, name, name), 0, size == rows.end() ? w : size->second}};
  }
  const std::size_t dot = place.weight.rfind('.');
  const std::string module = place.weight.substr(0, dot), kind = place.weight.substr(dot);
  const auto size = rows.find(module);
  return {{.name = "transformer.h." + std::to_string(place.block) + "." +
                   find(inside, module, name) + kind,
           .rows = size == rows.end() ? w : size->second,
           .transposed = kind == ".weight" && !module.starts_with("norm")}};
}

std::vector<HuggingFaceTensor> llama_tensors(const DecoderOptions& o, const std::string& name) {
  static const Names outside = {{"embed.tokens.weight", "model.embed_tokens.weight"},
                                {"head.norm.weight", "model.norm.weight"},
                                {"head.weight", "lm_head.weight"}};
  static const Names inside = {{"norm1.weight", "input_layernorm.weight"},
                               {"attention.out.weight", "self_attn.o_proj.weight"},
                               {"attention.query_norm.weight", "self_attn.q_norm.weight"},
                               {"attention.key_norm.weight", "self_attn.k_norm.weight"},
                               {"norm2.weight", "post_attention_layernorm.weight"},
                               {"mlp.down.weight", "mlp.down_proj.weight"}};
  const PlaceOfWeight place = place_of(name);
  if (place.block < 0)
    return {{find(outside, name, name), 0, name == "head.norm.weight" ? o.width : o.vocab}};
  const std::string prefix = "model.layers." + std::to_string(place.block) + ".";
  if (place.weight == "mlp.gate_up.weight")
    return {{prefix + "mlp.gate_proj.weight", 0, o.mlp_width},
            {prefix + "mlp.up_proj.weight", o.mlp_width, o.mlp_width}};
  if (place.weight.starts_with("attention.qkv.")) {
    const std::string kind = place.weight.substr(place.weight.rfind('.'));
    const std::int64_t q = o.heads * o.head_width, kv = o.kv_heads * o.head_width;
    return {{prefix + "self_attn.q_proj" + kind, 0, q},
            {prefix + "self_attn.k_proj" + kind, q, kv},
            {prefix + "self_attn.v_proj" + kind, q + kv, kv}};
  }
  const bool of_head = place.weight.ends_with("y_norm.weight");
  return {{prefix + find(inside, place.weight, name), 0, of_head ? o.head_width : o.width}};
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const DecoderOptions& options,
                                                    const std::string& our_name) {
  const DecoderOptions o = completed(options);
  if (o.kind == DecoderKind::kLlama) return llama_tensors(o, our_name);
  std::vector<HuggingFaceTensor> tensors = gpt2_tensors(o, our_name);
  if (o.skip) tensors = {{our_name, 0, tensors[0].rows}};
  return tensors;
}

std::string without_model_prefix(const std::string& name) {
  for (const std::string prefix : {"transformer.", "model."})
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

}  // namespace strata
