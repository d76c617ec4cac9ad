/// Converts the texts of samples to numbers, ids and labels with the means, quantiles and
/// vocabularies of the training samples, which a checkpoint stores as JSON.
///
/// Ids      hash: XXH3_64(text, seed = XXH3_64(feature's name)). vocabulary: place of the text
///          among the sorted ones; unknown and rare texts have the id after the last. number:
///          unchanged. buckets: the quantile's number; a missing number has the id after the last.
///          An empty text is an ordinary text; but with a separator, or as a number, it is no id,
///          and neither is an empty part between two separators.
/// Threads  const, any thread.
/// Errors   UserError with file, line and column: no number, no label, not finite, an invalid
///          weight or id; no label that is `positive`; too many texts for a vocabulary; a state of
///          other features.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "strata/tabular/column_text.h"
#include "strata/tabular/options.h"
#include "strata/tabular/sample_batch.h"

namespace strata {

class Preprocessing {
 public:
  /// Fits on samples [0, count) of `file`; reads the file only if a feature needs it.
  static std::shared_ptr<const Preprocessing> fit(const TabularOptions& options,
                                                  const SampleFile& file, std::int64_t count);

  static std::shared_ptr<const Preprocessing> load_state(const TabularOptions& options,
                                                         const std::string& json);
  std::string save_state() const;

  Preprocessing(const Preprocessing&) = delete;
  Preprocessing& operator=(const Preprocessing&) = delete;

  const TabularOptions& options() const { return options_; }

  /// The model's input for numeric feature `i`.
  float number(std::size_t i, const ColumnText& text) const;
  float number(std::size_t i, double value) const;

  /// The id of a text of categorical feature `i`; none if it has to be a number and is not.
  std::optional<std::uint64_t> id_of(std::size_t i, std::string_view text) const;

  /// The text of an id in the vocabulary of categorical feature `i`; none if it has none, such as a
  /// hash.
  std::optional<std::string> vocabulary_text(std::size_t i, std::uint64_t id) const;

  /// The texts of ids in a column of categorical feature `i`: between its separators, without
  /// weights.
  std::vector<std::string_view> texts_of(std::size_t i, std::string_view column) const;

  /// Appends the ids of categorical feature `i` in one sample.
  void append_ids(std::size_t i, const ColumnText& text, IdLists& lists) const;

 private:
  class Fit;

  struct Numeric {
    double mean = 0;
    double deviation = 1;       // 1 if all numbers are equal
    std::vector<double> edges;  // of buckets: the first value of the next bucket
  };
  struct Categorical {
    std::uint64_t seed = 0;  // seed of its hash
    std::vector<std::string> vocabulary;
    std::vector<double> edges;
    std::unordered_map<std::string_view, std::uint64_t> places;
  };

  explicit Preprocessing(const TabularOptions& options);
  void index_vocabularies();
  bool needs_samples() const;
  void append_id(std::size_t i, const ColumnText& text, std::string_view part,
                 IdLists& lists) const;

  TabularOptions options_;
  std::vector<Numeric> numeric_;
  std::vector<Categorical> categorical_;
};

/// XXH3 of a text, seeded with that of its column's or feature's name.
std::uint64_t hash_text(std::string_view name, std::string_view text);

/// Splits a column at its separators and drops empty parts; without a separator the column is one
/// part.
std::vector<std::string_view> parts_of(std::string_view text, std::string_view separator);

}  // namespace strata
