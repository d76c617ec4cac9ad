#include "strata/rowserver/feature_changes.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "strata/base/units.h"
#include "strata/base/user_text.h"
#include "strata/rowserver/codec/byte_codec.h"

namespace strata {
namespace {

constexpr std::size_t kMostNamed = 4;

// Visits every field of a table except its name, in the order of the bytes: visit(name, field).
template <typename Spec, typename Visit>
void for_each_field(Spec& spec, const Visit& visit) {
  visit("width", spec.width);
  visit("init.kind", spec.init.kind);
  visit("init.scale", spec.init.scale);
  auto& of = spec.optimizer;
  visit("optimizer.kind", of.kind);
  visit("optimizer.learning_rate", of.learning_rate);
  visit("optimizer.epsilon", of.epsilon);
  visit("optimizer.initial_accumulator", of.initial_accumulator);
  visit("optimizer.momentum", of.momentum);
  visit("optimizer.beta1", of.beta1);
  visit("optimizer.beta2", of.beta2);
  visit("optimizer.weight_decay", of.weight_decay);
  visit("optimizer.l1", of.l1);
  visit("optimizer.l2", of.l2);
  visit("precision", spec.precision);
  visit("admission.filter", spec.admission.filter);
  visit("admission.threshold", spec.admission.threshold);
  visit("eviction.policy", spec.eviction.policy);
  visit("eviction.steps_to_live", spec.eviction.steps_to_live);
}

struct Encode {
  ByteWriter& to;
  void operator()(const char*, double value) const { to.real(value); }
  template <typename T>
  void operator()(const char*, T value) const {
    to.varint(static_cast<std::uint64_t>(value));
  }
};

struct Decode {
  ByteReader& from;
  void operator()(const char*, double& value) const { value = from.real(); }
  template <typename T>
  void operator()(const char*, T& value) const {
    value = static_cast<T>(from.number());
  }
};

using Fields = std::vector<std::pair<std::string, std::string>>;

struct Texts {
  Fields& all;
  void operator()(const char* name, double value) const {
    all.emplace_back(name, format_double_exactly(value));
  }
  template <typename T>
  void operator()(const char* name, T value) const {
    if constexpr (std::is_enum_v<T>)
      all.emplace_back(name, name_of(value));
    else
      all.emplace_back(name, std::to_string(value));
  }
};

Fields fields_of(const FeatureSpec& spec) {
  Fields fields;
  for_each_field(spec, Texts{fields});
  return fields;
}

std::string names_of(const std::vector<FeatureSpec>& features) {
  std::string names;
  for (const FeatureSpec& spec : features) names += (names.empty() ? "" : ", ") + spec.name;
  return "the tables " + (names.empty() ? "none" : excerpt(names));
}

bool have_same_names(const std::vector<FeatureSpec>& one, const std::vector<FeatureSpec>& other) {
  return std::ranges::equal(one, other, {}, &FeatureSpec::name, &FeatureSpec::name);
}

// Appends the field's value on each side while there is room.
class Named {
 public:
  void add(const std::string& field, const std::string& here, const std::string& there) {
    if (++count_ > kMostNamed) return;
    const std::string separator = count_ == 1 ? "" : ", ";
    changes_.here += separator + field + " " + here;
    changes_.there += separator + field + " " + there;
  }
  FeatureChanges take() {
    if (count_ > kMostNamed) {
      const std::string more = ", and " + std::to_string(count_ - kMostNamed) + " more";
      changes_.here += more;
      changes_.there += more;
    }
    return std::move(changes_);
  }

 private:
  FeatureChanges changes_;
  std::size_t count_ = 0;
};

// Bytes of the fields without name and width.
std::vector<std::byte> fields_bytes(FeatureSpec spec) {
  spec.width = 0;
  ByteWriter to;
  for_each_field(spec, Encode{to});
  return to.take();
}

}  // namespace

std::vector<std::byte> encode_features(const std::vector<FeatureSpec>& features,
                                       std::uint64_t seed) {
  ByteWriter to;
  to.fixed64(seed);
  for (const FeatureSpec& spec : features) {
    to.text(spec.name);
    for_each_field(spec, Encode{to});
  }
  return to.take();
}

std::vector<std::byte> pack_features(const std::vector<FeatureSpec>& features, std::uint64_t seed) {
  ByteWriter to;
  to.fixed64(seed);
  std::vector<std::byte> before;
  for (const FeatureSpec& spec : features) {
    to.text(spec.name);
    to.varint(static_cast<std::uint64_t>(spec.width));
    std::vector<std::byte> fields = fields_bytes(spec);
    const bool same = fields == before;
    to.varint(same ? 1 : 0);
    if (!same) to.bytes(fields);
    before = std::move(fields);
  }
  return to.take();
}

SeededFeatures unpack_features(std::span<const std::byte> bytes) {
  ByteReader from(bytes, "tables");
  SeededFeatures all{.features = {}, .seed = from.fixed64()};
  FeatureSpec spec;
  while (from.left() > 0) {
    spec.name = from.text();
    const std::int64_t width = from.number();
    if (from.varint() == 0) for_each_field(spec, Decode{from});
    spec.width = static_cast<int>(width);
    all.features.push_back(spec);
  }
  return all;
}

FeatureChanges feature_changes(const SeededFeatures& here, const SeededFeatures& there) {
  if (!have_same_names(here.features, there.features))
    return {names_of(here.features), names_of(there.features)};
  Named named;
  if (here.seed != there.seed)
    named.add("train.seed", std::to_string(here.seed), std::to_string(there.seed));
  for (std::size_t i = 0; i < here.features.size(); ++i) {
    const Fields ours = fields_of(here.features[i]), theirs = fields_of(there.features[i]);
    for (std::size_t k = 0; k < ours.size(); ++k)
      if (ours[k].second != theirs[k].second)
        named.add(excerpt(here.features[i].name) + ": " + ours[k].first, ours[k].second,
                  theirs[k].second);
  }
  return named.take();
}

}  // namespace strata
