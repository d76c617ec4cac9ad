#include "strata/tabular/feature_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/base/units.h"

namespace strata {
namespace {

// Counts samples from 1, as files count lines.
class ColumnPlaces final : public SamplePlaces {
 public:
  explicit ColumnPlaces(const std::vector<FeatureColumn>& columns) {
    for (const FeatureColumn& column : columns) names_.push_back(column.name);
  }
  const std::vector<std::string>& columns() const override { return names_; }
  std::string place(std::int64_t sample) const override {
    return "sample " + std::to_string(sample + 1);
  }

 private:
  std::vector<std::string> names_;
};

int index_of(const std::vector<FeatureColumn>& columns, const std::string& name) {
  return static_cast<int>(std::ranges::find(columns, name, &FeatureColumn::name) - columns.begin());
}

float number_of(const Preprocessing& preprocessing, std::size_t feature, double value,
                const ColumnText& place) {
  if (std::isnan(value)) return 0;
  if (std::fabs(value) > std::numeric_limits<float>::max())
    place.refuse("this is no number", "a finite number of 32 bits, or NaN for a missing one",
                 format_double_exactly(value), "correct or remove the sample");
  return preprocessing.number(feature, value);
}

}  // namespace

std::vector<FeatureColumn> feature_columns(const TabularOptions& options) {
  std::vector<FeatureColumn> columns;
  const auto add = [&](const std::string& name, bool has_numbers) {
    const auto known = std::ranges::find(columns, name, &FeatureColumn::name);
    if (known == columns.end())
      columns.push_back({name, has_numbers});
    else if (!has_numbers)
      known->has_numbers = false;
  };
  for (const NumericOptions& feature : options.numeric) add(feature.name, true);
  for (const CategoricalOptions& feature : options.categorical) add(feature.source(), false);
  return columns;
}

SampleBatch read_columns(const Preprocessing& preprocessing, std::int64_t samples,
                         std::span<const ColumnValues> values) {
  const TabularOptions& options = preprocessing.options();
  const std::vector<FeatureColumn> columns = feature_columns(options);
  const ColumnPlaces places(columns);
  const auto text = [&](std::int64_t sample, int column) {
    const ColumnValues& of = values[static_cast<std::size_t>(column)];
    return ColumnText{
        places, sample, column,
        of.texts.empty() ? std::string_view() : of.texts[static_cast<std::size_t>(sample)]};
  };
  SampleBatch batch{.samples = samples};
  const std::size_t width = options.numeric.size();
  batch.numeric.resize(static_cast<std::size_t>(samples) * width);
  for (std::size_t i = 0; i < width; ++i) {
    const int column = index_of(columns, options.numeric[i].name);
    const std::vector<double>& numbers = values[static_cast<std::size_t>(column)].numbers;
    const bool has_numbers = columns[static_cast<std::size_t>(column)].has_numbers;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const auto at = static_cast<std::size_t>(sample);
      batch.numeric[at * width + i] =
          has_numbers ? number_of(preprocessing, i, numbers[at], text(sample, column))
                      : preprocessing.number(i, text(sample, column));
    }
  }
  for (std::size_t i = 0; i < options.categorical.size(); ++i) {
    const int column = index_of(columns, options.categorical[i].source());
    IdLists& lists = batch.categorical.emplace_back();
    for (std::int64_t sample = 0; sample < samples; ++sample)
      preprocessing.append_ids(i, text(sample, column), lists);
  }
  return batch;
}

}  // namespace strata
