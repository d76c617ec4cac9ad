#include "strata/tabular/sample_check.h"

#include "strata/tabular/preprocessing.h"

namespace strata {
namespace {

// Any text has a hash and may be in a vocabulary.
bool takes_any_text(const CategoricalOptions& feature) {
  return (feature.ids == IdSource::kHash || feature.ids == IdSource::kVocabulary) &&
         feature.pool != Pooling::kWeighted;
}

void check_ids(const CategoricalOptions& options, const ColumnText& text) {
  for (const std::string_view part : read_parts(options, text)) {
    const std::string_view id = written_id(options, text, part).id;
    if (options.ids == IdSource::kNumber) text.id(id);
    if (options.ids == IdSource::kBuckets && !trim_blanks(id).empty()) text.number(id);
  }
}

}  // namespace

SampleColumns::SampleColumns(const SampleFile& file, const TabularOptions& options)
    : label(file.column(options.label)) {
  if (!options.group.empty()) group = file.column(options.group);
  for (const NumericOptions& number : options.numeric) numeric.push_back(file.column(number.name));
  for (const CategoricalOptions& feature : options.categorical)
    categorical.push_back(file.column(feature.source()));
}

std::vector<std::string_view> read_parts(const CategoricalOptions& options,
                                         const ColumnText& text) {
  if (options.ids == IdSource::kNumber && text.is_missing()) return {};
  std::vector<std::string_view> parts = parts_of(text.text, options.separator);
  const auto last = static_cast<std::size_t>(options.last);
  if (last > 0 && parts.size() > last)
    parts.erase(parts.begin(), parts.end() - static_cast<std::ptrdiff_t>(last));
  return parts;
}

WrittenId written_id(const CategoricalOptions& options, const ColumnText& text,
                     std::string_view part) {
  if (options.pool != Pooling::kWeighted) return {part};
  const std::size_t colon = part.rfind(':');
  if (colon == std::string_view::npos) return {part};
  return {part.substr(0, colon), static_cast<float>(text.number(part.substr(colon + 1)))};
}

SampleCheck::SampleCheck(const SampleFile& file, const TabularOptions& options)
    : file_(file), options_(options), columns_(file, options) {
  for (std::size_t i = 0; i < options.categorical.size(); ++i)
    if (!takes_any_text(options.categorical[i])) written_.push_back(i);
}

void SampleCheck::check(std::int64_t sample, std::span<const std::string_view> fields) const {
  const auto column = [&](int index) {
    return ColumnText{file_, sample, index, fields[static_cast<std::size_t>(index)]};
  };
  column(columns_.label).label(options_.positive);
  for (const int index : columns_.numeric)
    if (const ColumnText text = column(index); !text.is_missing()) text.number_of_feature();
  for (const std::size_t feature : written_)
    check_ids(options_.categorical[feature], column(columns_.categorical[feature]));
}

}  // namespace strata
