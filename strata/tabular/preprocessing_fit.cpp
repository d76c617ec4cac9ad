// Quantiles use at most a million samples, evenly spread over those that are fitted. That locates a
// bucket's edge to a thousandth of a quantile and bounds memory.
#include <algorithm>
#include <cmath>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/tabular/preprocessing.h"
#include "strata/tabular/sample_check.h"

namespace strata {
namespace {

constexpr std::int64_t kMostQuantileSamples = std::int64_t{1} << 20;
constexpr std::size_t kMostCandidates = std::size_t{1} << 23;
constexpr std::size_t kMostTexts = 1'000'000;

[[noreturn]] void refuse_vocabulary(const std::string& feature, std::size_t most) {
  throw UserError({.operation = "tabular.fit",
                   .where = "feature " + quote(feature),
                   .what = "too many texts for a vocabulary",
                   .expected = "at most " + std::to_string(most),
                   .got = "more",
                   .fix = "set ids: hash, or a larger min_count"});
}

// Edge k separates the first k / buckets of the sorted values from the rest.
std::vector<double> quantile_edges(std::vector<double> values, std::int64_t buckets) {
  std::ranges::sort(values);
  std::vector<double> edges;
  const auto count = static_cast<std::int64_t>(values.size());
  for (std::int64_t k = 1; k < buckets && count > 0; ++k)
    edges.push_back(values[static_cast<std::size_t>(k * count / buckets)]);
  return edges;
}

using Counts = std::unordered_map<std::string, std::int64_t>;

std::vector<std::string> vocabulary_of(const Counts& counts, const CategoricalOptions& options) {
  std::vector<std::string> texts;
  for (const auto& [text, count] : counts)
    if (count >= options.min_count) texts.push_back(text);
  if (texts.size() > kMostTexts) refuse_vocabulary(options.name, kMostTexts);
  std::ranges::sort(texts);
  return texts;
}

}  // namespace

/// One pass over the samples.
class Preprocessing::Fit {
 public:
  Fit(Preprocessing& result, const SampleFile& file, std::int64_t count)
      : result_(result),
        options_(result.options_),
        file_(file),
        columns_(file, options_),
        count_(count),
        stride_((count + kMostQuantileSamples - 1) / kMostQuantileSamples),
        moments_(options_.numeric.size()),
        numeric_values_(options_.numeric.size()),
        categorical_values_(options_.categorical.size()),
        counts_(options_.categorical.size()) {}

  void run() {
    SampleText text;
    bool any_positive = false;
    for (std::int64_t sample = 0; sample < count_; ++sample) {
      file_.read(sample, text);
      any_positive =
          column(sample, columns_.label, text).label(options_.positive) > 0 || any_positive;
      add_numeric(sample, text);
      add_categorical(sample, text);
    }
    if (!options_.positive.empty() && !any_positive)
      refuse_positive(text.fields[static_cast<std::size_t>(columns_.label)]);
    store();
  }

 private:
  // Welford: mean and squared deviations in one pass.
  class Moments {
   public:
    void add(double value) {
      ++count_;
      const double before = value - mean_;
      mean_ += before / static_cast<double>(count_);
      squares_ += before * (value - mean_);
    }
    double mean() const { return mean_; }
    double deviation() const {
      const double deviation = count_ > 0 ? std::sqrt(squares_ / static_cast<double>(count_)) : 0;
      return deviation > 0 ? deviation : 1;
    }

   private:
    std::int64_t count_ = 0;
    double mean_ = 0, squares_ = 0;
  };

  ColumnText column(std::int64_t sample, int column, const SampleText& text) const {
    return {file_, sample, column, text.fields[static_cast<std::size_t>(column)]};
  }

  void add_numeric(std::int64_t sample, const SampleText& text) {
    for (std::size_t i = 0; i < options_.numeric.size(); ++i) {
      const NumericOptions& options = options_.numeric[i];
      const ColumnText value = column(sample, columns_.numeric[i], text);
      if (value.is_missing()) continue;
      const double number = value.number_of_feature();
      if (options.transform == NumericTransform::kZScore) moments_[i].add(number);
      if (options.transform == NumericTransform::kBuckets && sample % stride_ == 0)
        numeric_values_[i].push_back(number);
    }
  }

  void add_categorical(std::int64_t sample, const SampleText& text) {
    for (std::size_t i = 0; i < options_.categorical.size(); ++i) {
      const CategoricalOptions& options = options_.categorical[i];
      const bool vocabulary = options.ids == IdSource::kVocabulary;
      if (!vocabulary && options.ids != IdSource::kBuckets) continue;
      const ColumnText value = column(sample, columns_.categorical[i], text);
      if (!vocabulary) {
        if (!value.is_missing() && sample % stride_ == 0)
          categorical_values_[i].push_back(value.number(value.text));
        continue;
      }
      for (const std::string_view part : result_.texts_of(i, value.text))
        ++counts_[i][std::string(part)];
      if (counts_[i].size() > kMostCandidates) refuse_vocabulary(options.name, kMostCandidates);
    }
  }

  void store() {
    for (std::size_t i = 0; i < options_.numeric.size(); ++i) {
      Numeric& learnt = result_.numeric_[i];
      if (options_.numeric[i].transform == NumericTransform::kZScore) {
        learnt.mean = moments_[i].mean();
        learnt.deviation = moments_[i].deviation();
      }
      learnt.edges = quantile_edges(std::move(numeric_values_[i]), options_.numeric[i].buckets);
    }
    for (std::size_t i = 0; i < options_.categorical.size(); ++i) {
      const CategoricalOptions& options = options_.categorical[i];
      result_.categorical_[i].vocabulary = vocabulary_of(counts_[i], options);
      result_.categorical_[i].edges =
          quantile_edges(std::move(categorical_values_[i]), options.buckets);
    }
  }

  [[noreturn]] void refuse_positive(std::string_view last) const {
    throw UserError({.operation = "tabular.fit",
                     .where = "column " + quote(options_.label),
                     .what = "no sample has the label that means 1",
                     .expected = quote(options_.positive),
                     .got = "others, such as " + quote(trim_blanks(last)),
                     .fix = "set data.positive to a text of this column"});
  }

  Preprocessing& result_;
  const TabularOptions& options_;
  const SampleFile& file_;
  SampleColumns columns_;
  std::int64_t count_, stride_;
  std::vector<Moments> moments_;
  std::vector<std::vector<double>> numeric_values_, categorical_values_;
  std::vector<Counts> counts_;
};

std::shared_ptr<const Preprocessing> Preprocessing::fit(const TabularOptions& options,
                                                        const SampleFile& file,
                                                        std::int64_t count) {
  std::shared_ptr<Preprocessing> result(new Preprocessing(options));
  if (result->needs_samples()) Fit(*result, file, count).run();
  result->index_vocabularies();
  return result;
}

}  // namespace strata
