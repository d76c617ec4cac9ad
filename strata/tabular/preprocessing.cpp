#include "strata/tabular/preprocessing.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "strata/base/errors.h"
#include "strata/tabular/sample_check.h"

namespace strata {
namespace {

std::uint64_t bucket_of(const std::vector<double>& edges, double value) {
  return static_cast<std::uint64_t>(std::ranges::upper_bound(edges, value) - edges.begin());
}

std::uint64_t hash_seeded(std::uint64_t seed, std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::uint64_t seed_of(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

}  // namespace

std::uint64_t hash_text(std::string_view name, std::string_view text) {
  return hash_seeded(seed_of(name), text);
}

std::vector<std::string_view> parts_of(std::string_view text, std::string_view separator) {
  if (separator.empty()) return {text};
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + separator.size();
  }
  return parts;
}

Preprocessing::Preprocessing(const TabularOptions& options)
    : options_(options),
      numeric_(options.numeric.size()),
      categorical_(options.categorical.size()) {
  for (std::size_t i = 0; i < categorical_.size(); ++i)
    categorical_[i].seed = seed_of(options_.categorical[i].name);
}

// The keys are views into the vocabulary, which does not move.
void Preprocessing::index_vocabularies() {
  for (Categorical& feature : categorical_) {
    for (std::size_t i = 0; i < feature.vocabulary.size(); ++i)
      feature.places.emplace(feature.vocabulary[i], i);
  }
}

bool Preprocessing::needs_samples() const {
  return !options_.positive.empty() ||
         std::ranges::any_of(options_.numeric,
                             [](const NumericOptions& number) {
                               return number.transform == NumericTransform::kZScore ||
                                      number.transform == NumericTransform::kBuckets;
                             }) ||
         std::ranges::any_of(options_.categorical, [](const CategoricalOptions& feature) {
           return feature.ids == IdSource::kVocabulary || feature.ids == IdSource::kBuckets;
         });
}

float Preprocessing::number(std::size_t i, const ColumnText& text) const {
  return text.is_missing() ? 0 : number(i, text.number_of_feature());
}

float Preprocessing::number(std::size_t i, double value) const {
  const NumericOptions& options = options_.numeric[i];
  const Numeric& learnt = numeric_[i];
  switch (options.transform) {
    case NumericTransform::kNone:
      return static_cast<float>(value);
    case NumericTransform::kZScore:
      return static_cast<float>((value - learnt.mean) / learnt.deviation);
    case NumericTransform::kLog:
      return static_cast<float>(std::copysign(std::log1p(std::fabs(value)), value));
    case NumericTransform::kBuckets: {
      const auto bucket = static_cast<double>(bucket_of(learnt.edges, value));
      return static_cast<float>((bucket + 0.5) / static_cast<double>(options.buckets) - 0.5);
    }
  }
  return 0;
}

std::optional<std::uint64_t> Preprocessing::id_of(std::size_t i, std::string_view text) const {
  const Categorical& learnt = categorical_[i];
  switch (options_.categorical[i].ids) {
    case IdSource::kHash:
      return hash_seeded(learnt.seed, text);
    case IdSource::kVocabulary: {
      const auto found = learnt.places.find(text);
      return found == learnt.places.end() ? learnt.vocabulary.size() : found->second;
    }
    case IdSource::kNumber:
      return whole_number(text);
    case IdSource::kBuckets: {
      if (trim_blanks(text).empty())
        return static_cast<std::uint64_t>(options_.categorical[i].buckets);
      const std::optional<double> value = feature_number(text);
      if (!value) return std::nullopt;
      return bucket_of(learnt.edges, *value);
    }
  }
  return std::nullopt;
}

std::optional<std::string> Preprocessing::vocabulary_text(std::size_t i, std::uint64_t id) const {
  const std::vector<std::string>& vocabulary = categorical_[i].vocabulary;
  if (options_.categorical[i].ids != IdSource::kVocabulary || id > vocabulary.size())
    return std::nullopt;
  return id < vocabulary.size() ? vocabulary[id] : "(unknown)";
}

std::vector<std::string_view> Preprocessing::texts_of(std::size_t i,
                                                      std::string_view column) const {
  const CategoricalOptions& options = options_.categorical[i];
  std::vector<std::string_view> parts = parts_of(column, options.separator);
  if (options.pool == Pooling::kWeighted)
    for (std::string_view& part : parts) part = part.substr(0, part.rfind(':'));
  return parts;
}

void Preprocessing::append_id(std::size_t i, const ColumnText& text, std::string_view part,
                              IdLists& lists) const {
  const CategoricalOptions& options = options_.categorical[i];
  const WrittenId written = written_id(options, text, part);
  if (options.pool == Pooling::kWeighted) lists.weights.push_back(written.weight);
  if (const std::optional<std::uint64_t> id = id_of(i, written.id)) {
    lists.ids.push_back(*id);
    return;
  }
  // Throws the error with its place.
  if (options.ids == IdSource::kNumber) text.id(written.id);
  text.number(written.id);
}

void Preprocessing::append_ids(std::size_t i, const ColumnText& text, IdLists& lists) const {
  const CategoricalOptions& options = options_.categorical[i];
  if (options.separator.empty()) {
    // The column is the only part; a list of parts would allocate memory for every id.
    if (options.ids != IdSource::kNumber || !text.is_missing())
      append_id(i, text, text.text, lists);
  } else {
    for (const std::string_view part : read_parts(options, text)) append_id(i, text, part, lists);
  }
  lists.offsets.push_back(static_cast<std::int64_t>(lists.ids.size()));
}

}  // namespace strata
