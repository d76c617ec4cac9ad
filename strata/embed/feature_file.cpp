#include "strata/embed/feature_file.h"

#include <algorithm>

#include "strata/base/json_document.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

void require_known(const JsonPart& object, const std::vector<std::string>& known) {
  for (const std::string& key : object.keys())
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string nearest = nearest_name(key, known);
      object.refuse(nearest.empty() ? "one of its fields" : nearest, quote(key));
    }
}

template <typename Kind>
void read_kind(const JsonPart& name, Kind last, Kind& kind) {
  if (name.is_null()) return;
  const std::string text = name.text();
  std::string all;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    kind = static_cast<Kind>(i);
    if (text == name_of(kind)) return;
    all += (i > 0 ? ", " : "") + std::string(name_of(kind));
  }
  name.refuse(all, quote(text));
}

void read_real(const JsonPart& of, const char* key, double& value) {
  if (!of.member(key).is_null()) value = of.member(key).real();
}

void read_count(const JsonPart& of, const char* key, std::int64_t& value) {
  if (!of.member(key).is_null()) value = of.member(key).number();
}

FeatureSpec read_feature(const JsonPart& part) {
  require_known(part, {"name", "width", "init", "optimizer", "precision", "admission", "eviction"});
  FeatureSpec spec;
  spec.name = part.required_member("name").text();
  spec.width = static_cast<int>(part.required_member("width").number(1, 1 << 16));
  read_kind(part.member("precision"), RowPrecision::kInt8, spec.precision);
  if (const JsonPart init = part.member("init"); !init.is_null()) {
    require_known(init, {"kind", "scale"});
    read_kind(init.member("kind"), RowInit::Kind::kZeros, spec.init.kind);
    read_real(init, "scale", spec.init.scale);
  }
  if (const JsonPart of = part.member("optimizer"); !of.is_null()) {
    require_known(of, {"kind", "learning_rate", "epsilon", "initial_accumulator", "momentum",
                       "beta1", "beta2", "weight_decay", "l1", "l2"});
    RowOptimizerOptions& to = spec.optimizer;
    read_kind(of.member("kind"), RowOptimizerKind::kFtrl, to.kind);
    read_real(of, "learning_rate", to.learning_rate);
    read_real(of, "epsilon", to.epsilon);
    read_real(of, "initial_accumulator", to.initial_accumulator);
    read_real(of, "momentum", to.momentum);
    read_real(of, "beta1", to.beta1);
    read_real(of, "beta2", to.beta2);
    read_real(of, "weight_decay", to.weight_decay);
    read_real(of, "l1", to.l1);
    read_real(of, "l2", to.l2);
  }
  if (const JsonPart of = part.member("admission"); !of.is_null()) {
    require_known(of, {"filter", "threshold"});
    read_kind(of.member("filter"), RowAdmission::Filter::kBloom, spec.admission.filter);
    read_count(of, "threshold", spec.admission.threshold);
  }
  if (const JsonPart of = part.member("eviction"); !of.is_null()) {
    require_known(of, {"policy", "steps_to_live"});
    read_kind(of.member("policy"), RowEviction::Policy::kLeastFrequent, spec.eviction.policy);
    read_count(of, "steps_to_live", spec.eviction.steps_to_live);
  }
  return spec;
}

}  // namespace

std::vector<FeatureSpec> read_features(const std::string& path) {
  const JsonDocument document =
      JsonDocument::read(path, {.operation = "embed.features", .fix = "see docs/formats.md"});
  require_known(document.root(), {"features"});
  std::vector<FeatureSpec> features;
  for (const JsonPart& part : document.root().required_member("features").elements())
    features.push_back(read_feature(part));
  return features;
}

}  // namespace strata
