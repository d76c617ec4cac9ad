#include "strata/checkpoint/model_description.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <type_traits>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/models/attention_options.h"
#include "strata/models/model.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

// A description is external input: no model has larger sizes.
constexpr std::int64_t kMaxLayers = 1'000'000;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

// Only sparse patterns are written: descriptions of dense models are as before there were others.
constexpr const char* kAttention = "attention";

// The fields of version 1, in order: f(name in the description, field, name in the recipe, what a
// different value means).
enum class Difference { kOtherWeights, kOtherResult, kNone };

template <typename Options, typename F>
void for_each_field(Options& o, F f) {
  using enum Difference;
  f("kind", o.kind, "kind", kOtherWeights);
  f("layers", o.layers, "layers", kOtherWeights);
  f("width", o.width, "width", kOtherWeights);
  f("heads", o.heads, "heads", kOtherWeights);
  f("vocab", o.vocab, "vocab", kOtherWeights);
  f("context", o.context, "context", o.kind == DecoderKind::kGpt ? kOtherWeights : kOtherResult);
  f("dropout", o.dropout, "dropout", kNone);
  f("tie", o.tie, "tie", kOtherWeights);
  f("skip", o.skip, "skip", kOtherWeights);
  f("kv_heads", o.kv_heads, "kv_heads", kOtherWeights);
  f("head_width", o.head_width, "head_width", kOtherWeights);
  f("mlp_width", o.mlp_width, "mlp_width", kOtherWeights);
  f("rope_theta", o.rope.theta, "rope.theta", kOtherResult);
  f("rope_factor", o.rope.factor, "rope.factor", kOtherResult);
  f("rope_low_frequency_factor", o.rope.low_frequency_factor, "rope.low_frequency_factor",
    kOtherResult);
  f("rope_high_frequency_factor", o.rope.high_frequency_factor, "rope.high_frequency_factor",
    kOtherResult);
  f("rope_original_context", o.rope.original_context, "rope.original_context", kOtherResult);
  f("norm_epsilon", o.norm_epsilon, "norm_epsilon", kOtherResult);
  f("qkv_bias", o.qkv_bias, "qkv_bias", kOtherWeights);
  f("qk_norm", o.qk_norm, "qk_norm", kOtherWeights);
  f(kAttention, o.attention, kAttention, kOtherResult);
}

template <typename T>
T read_field(const JsonPart& part, const std::string& name) {
  if constexpr (std::is_same_v<T, bool>) {
    return part.flag();
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return part.number(1, name == "layers" ? kMaxLayers : kMaxSize);
  } else if constexpr (std::is_same_v<T, double>) {
    return part.real();
  } else if constexpr (std::is_same_v<T, AttentionPattern>) {
    return part.is_null() ? AttentionPattern() : read_pattern(part.text(), part.file());
  } else {
    if (const auto kind = value_named<DecoderKind>(part.text())) return *kind;
    part.refuse(list_names<DecoderKind>(" or "), part.text());
  }
}

template <typename T>
ordered_json as_json(const T& value) {
  if constexpr (std::is_same_v<T, DecoderKind>) {
    return name_of(value);
  } else if constexpr (std::is_same_v<T, AttentionPattern>) {
    return pattern_text(value);
  } else {
    return value;
  }
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

// Shapes of the model's weights, for its first `layers` blocks only.
Shapes shapes_of(DecoderOptions options, std::int64_t layers) {
  options.layers = std::min(options.layers, layers);
  const Sequential model = make_model(options);
  Shapes shapes;
  for (int layer = 0; layer < model.num_layers(); ++layer)
    for (const WeightSpec& spec : model.layout(layer).specs)
      shapes.emplace(model.name(layer) + "." + spec.name, spec.shape);
  return shapes;
}

std::string shape_in(const Shapes& shapes, const std::string& name) {
  const auto found = shapes.find(name);
  return found == shapes.end() ? "no such weight" : text_of(found->second);
}

// The first weight by name that only one model has, or that differs in shape; "" if there is none.
std::string other_weight(const Shapes& a, const Shapes& b) {
  for (const auto& [name, shape] : a)
    if (const auto found = b.find(name); found == b.end() || found->second != shape) return name;
  for (const auto& [name, shape] : b)
    if (!a.contains(name)) return name;
  return "";
}

// "model.width=64", as --set takes it; of a pattern several.
template <typename T>
std::string settings_of(const std::string& option, const T& value) {
  const ordered_json json = as_json(value);
  return "model." + option + "=" + (json.is_string() ? json.get<std::string>() : json.dump());
}
std::string settings_of(const std::string& option, const AttentionPattern& pattern) {
  std::string settings;
  for (const auto& [name, value] : pattern_fields(pattern))
    settings += (settings.empty() ? "model." : " model.") + option + "." + name + "=" + value;
  return settings;
}

// "model.width=64 model.layers=2": the fields in which `checkpoint` differs from `model`.
std::string other_fields(const DecoderOptions& checkpoint, const DecoderOptions& model,
                         SameModel what) {
  ordered_json mine;
  for_each_field(model, [&](const char* name, const auto& value, const char*, Difference) {
    mine[name] = as_json(value);
  });
  std::string fields;
  for_each_field(checkpoint, [&](const char* name, const auto& value, const char* option,
                                 Difference difference) {
    const bool counts = difference == Difference::kOtherWeights ||
                        (what == SameModel::kAll && difference == Difference::kOtherResult);
    const ordered_json theirs = as_json(value);
    if (!counts || mine[name] == theirs) return;
    fields += (fields.empty() ? "" : " ") + settings_of(option, value);
  });
  return fields;
}

}  // namespace

ordered_json describe_model(const DecoderOptions& model) {
  ordered_json description = {{"version", kModelDescription}};
  const DecoderOptions whole = completed(model);
  for_each_field(whole, [&](const char* name, const auto& value, const char*, Difference) {
    description[name] = as_json(value);
  });
  if (!whole.attention.sparse()) description.erase(kAttention);
  return description;
}

DecoderOptions read_model(const JsonPart& description) {
  const JsonPart version = description.member("version");
  if (version.number() != kModelDescription)
    version.refuse(std::to_string(kModelDescription) + ", or a later version of strata",
                   version.quoted());
  DecoderOptions model;
  std::vector<std::string> known = {"version"};
  for_each_field(model, [&](const char* name, auto& value, const char*, Difference) {
    value = read_field<std::remove_reference_t<decltype(value)>>(description.member(name), name);
    known.emplace_back(name);
  });
  for (const std::string& key : description.keys())
    if (std::find(known.begin(), known.end(), key) == known.end())
      description.member(key).refuse("the fields of version " + std::to_string(kModelDescription),
                                     "another one");
  return completed(model);
}

DecoderOptions without_derived_sizes(const DecoderOptions& model) {
  const DecoderOptions whole = completed(model);
  DecoderOptions bare = whole;
  if (whole.kv_heads == whole.heads) bare.kv_heads = 0;
  if (whole.head_width * whole.heads == whole.width) bare.head_width = 0;
  DecoderOptions derived = bare;
  derived.mlp_width = 0;
  return completed(derived).mlp_width == whole.mlp_width ? derived : bare;
}

void require_same_model(const DecoderOptions& checkpoint, const DecoderOptions& model,
                        SameModel what, const std::string& path) {
  const DecoderOptions theirs = completed(checkpoint), ours = completed(model);
  const std::string fields = other_fields(theirs, ours, what);
  if (fields.empty()) return;
  const std::int64_t layers = std::min(theirs.layers, ours.layers) + 1;
  const Shapes in_checkpoint = shapes_of(theirs, layers), in_model = shapes_of(ours, layers);
  const std::string weight = other_weight(in_checkpoint, in_model);
  throw UserError(
      {.operation = "checkpoint.open",
       .where = path,
       .what = weight.empty()
                   ? "the checkpoint is of another model, with weights of the same shapes"
                   : "the checkpoint is of another model: '" + weight + "'",
       .expected = weight.empty() ? "the model of the recipe"
                                  : shape_in(in_model, weight) + " in the recipe's model",
       .got = weight.empty() ? fields : shape_in(in_checkpoint, weight) + " in the checkpoint",
       .fix = "set " + fields + ", as the checkpoint has it, or take another checkpoint"});
}

void require_same_model(const CheckpointModel& checkpoint, const CheckpointModel& model,
                        SameModel what, const std::string& path) {
  if (checkpoint.decoder && model.decoder)
    return require_same_model(*checkpoint.decoder, *model.decoder, what, path);
  // Sorted, so that the order does not depend on the writer.
  const auto fields_of = [](const CheckpointModel& one) {
    return one.decoder ? nlohmann::json{{"kind", name_of(one.decoder->kind)}}
                       : nlohmann::json::parse(one.network);
  };
  const nlohmann::json theirs = fields_of(checkpoint), ours = fields_of(model);
  for (const nlohmann::json* fields : {&theirs, &ours}) {
    for (const auto& [name, unused] : fields->items()) {
      const auto text = [&](const nlohmann::json& of) {
        return name + ": " + (of.contains(name) ? of[name].dump() : "none");
      };
      if (text(theirs) == text(ours)) continue;
      throw UserError(
          {.operation = "checkpoint.open",
           .where = path,
           .what = "the checkpoint is of another model",
           .expected = text(ours) + " in the recipe's model",
           .got = text(theirs) + " in the checkpoint",
           .fix = "set model." + name + " as the checkpoint has it, or take another checkpoint"});
    }
  }
}

}  // namespace strata
