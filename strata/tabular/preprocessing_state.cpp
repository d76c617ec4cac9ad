#include <algorithm>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/base/user_text.h"
#include "strata/base/utf8.h"
#include "strata/tabular/preprocessing.h"

namespace strata {
namespace {

constexpr std::int64_t kStateVersion = 1;
const FileUse kStateUse{.operation = "tabular.load_state",
                        .fix = "take the checkpoint and the recipe of one run"};
const char* const kStateName = "preprocessing";

// A text that is not UTF-8 is stored as a list of its bytes.
nlohmann::json to_json(const std::string& text) {
  if (utf8_bytes(text) == text.size()) return text;
  nlohmann::json bytes = nlohmann::json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

std::string text_of(const JsonPart& part) {
  if (part.value().is_string()) return part.text();
  std::string text;
  for (const JsonPart& byte : part.elements()) text += static_cast<char>(byte.number(0, 255));
  return text;
}

std::vector<double> edges_of(const JsonPart& part, std::int64_t buckets) {
  std::vector<double> edges;
  for (const JsonPart& edge : part.elements()) edges.push_back(edge.real());
  const auto count = static_cast<std::int64_t>(edges.size());
  if ((count != 0 && count != buckets - 1) || !std::ranges::is_sorted(edges))
    part.refuse(std::to_string(buckets - 1) + " ascending numbers", part.quoted());
  return edges;
}

void require_feature(const JsonPart& part, const std::string& name, const std::string& kind) {
  if (text_of(part.required_member("name")) != name)
    part.member("name").refuse(quote(name) + ", as in the recipe", part.member("name").quoted());
  if (part.required_member("kind").text() != kind)
    part.member("kind").refuse(kind + ", as in the recipe", part.member("kind").quoted());
}

std::vector<JsonPart> features_of(const JsonPart& list, std::size_t count) {
  std::vector<JsonPart> parts = list.elements();
  if (parts.size() != count)
    list.refuse(std::to_string(count) + " features, as in the recipe",
                std::to_string(parts.size()));
  return parts;
}

}  // namespace

std::string Preprocessing::save_state() const {
  nlohmann::json numeric = nlohmann::json::array(), categorical = nlohmann::json::array();
  for (std::size_t i = 0; i < numeric_.size(); ++i) {
    const NumericOptions& options = options_.numeric[i];
    numeric.push_back({{"name", to_json(options.name)},
                       {"kind", name_of(options.transform)},
                       {"mean", numeric_[i].mean},
                       {"deviation", numeric_[i].deviation},
                       {"edges", numeric_[i].edges}});
  }
  for (std::size_t i = 0; i < categorical_.size(); ++i) {
    const CategoricalOptions& options = options_.categorical[i];
    nlohmann::json texts = nlohmann::json::array();
    for (const std::string& text : categorical_[i].vocabulary) texts.push_back(to_json(text));
    categorical.push_back({{"name", to_json(options.name)},
                           {"kind", name_of(options.ids)},
                           {"vocabulary", std::move(texts)},
                           {"edges", categorical_[i].edges}});
  }
  std::string text = nlohmann::json{{"version", kStateVersion},
                                    {"numeric", std::move(numeric)},
                                    {"categorical", std::move(categorical)}}
                         .dump();
  if (text.size() <= kMaxJsonBytes) return text;
  throw UserError({.operation = "tabular.save_state",
                   .where = "data.categorical",
                   .what = "the vocabularies are too large for a checkpoint",
                   .expected = "at most " + std::to_string(kMaxJsonBytes) + " bytes",
                   .got = std::to_string(text.size()),
                   .fix = "set ids: hash, or a larger min_count"});
}

std::shared_ptr<const Preprocessing> Preprocessing::load_state(const TabularOptions& options,
                                                               const std::string& json) {
  const JsonDocument document = JsonDocument::parse(json, kStateName, kStateUse);
  const JsonPart root = document.root();
  if (root.required_member("version").number() != kStateVersion)
    root.member("version").refuse(std::to_string(kStateVersion), root.member("version").quoted());
  std::shared_ptr<Preprocessing> result(new Preprocessing(options));
  const auto numeric = features_of(root.required_member("numeric"), options.numeric.size());
  for (std::size_t i = 0; i < numeric.size(); ++i) {
    const NumericOptions& of = options.numeric[i];
    require_feature(numeric[i], of.name, name_of(of.transform));
    Numeric& learnt = result->numeric_[i];
    learnt.mean = numeric[i].required_member("mean").real();
    learnt.deviation = numeric[i].required_member("deviation").real();
    if (!(learnt.deviation > 0))
      numeric[i].member("deviation").refuse("more than 0", numeric[i].member("deviation").quoted());
    learnt.edges = edges_of(numeric[i].required_member("edges"), of.buckets);
  }
  const auto categorical =
      features_of(root.required_member("categorical"), options.categorical.size());
  for (std::size_t i = 0; i < categorical.size(); ++i) {
    const CategoricalOptions& of = options.categorical[i];
    require_feature(categorical[i], of.name, name_of(of.ids));
    Categorical& learnt = result->categorical_[i];
    for (const JsonPart& text : categorical[i].required_member("vocabulary").elements())
      learnt.vocabulary.push_back(text_of(text));
    learnt.edges = edges_of(categorical[i].required_member("edges"), of.buckets);
  }
  result->index_vocabularies();
  return result;
}

}  // namespace strata
