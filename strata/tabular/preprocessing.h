/// Turns the texts of samples into numbers, ids and labels, with what was learnt of the training
/// samples: means, quantiles, vocabularies. A checkpoint keeps that as JSON.
///
/// Ids      hash: XXH3_64(text, seed = XXH3_64(feature's name)). vocabulary: place of the text among
///          the sorted ones; unknown texts, and those that are too rare, have the id behind the last.
///          number: as it is. buckets: the quantile's number, a missing one has the id behind the last.
///          An empty text is a text like any other; but with a separator, or as a number, it is no
///          id at all, and so is nothing between two separators.
/// Threads  const, any thread.
/// Errors   UserError with file, line and column: no number, no label, not finite, a weight or id
///          that is none; no label that is `positive`; too many texts for a vocabulary; a state of
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
  /// Learns from samples [0, count) of `file` what the features need; reads it only if they do.
  static std::shared_ptr<const Preprocessing> fit(const TabularOptions& options,
                                                  const SampleFile& file, std::int64_t count);

  static std::shared_ptr<const Preprocessing> load_state(const TabularOptions& options,
                                                         const std::string& json);
  std::string save_state() const;

  Preprocessing(const Preprocessing&) = delete;
  Preprocessing& operator=(const Preprocessing&) = delete;

  const TabularOptions& options() const { return options_; }

  /// What the model reads of numeric feature `i`.
  float number(std::size_t i, const ColumnText& text) const;

  /// The id that a text has as one of categorical feature `i`; none where it has to be a number and is not.
  std::optional<std::uint64_t> id_of(std::size_t i, std::string_view text) const;

  /// What stands for an id of categorical feature `i` in its vocabulary; none where it has none, as of a hash.
  std::optional<std::string> vocabulary_text(std::size_t i, std::uint64_t id) const;

  /// The texts of ids that a column has of categorical feature `i`: between its separators, without weights.
  std::vector<std::string_view> texts_of(std::size_t i, std::string_view column) const;

  /// Adds what one sample has of categorical feature `i`.
  void append_ids(std::size_t i, const ColumnText& text, IdLists& lists) const;

 private:
  class Fit;

  struct Numeric {
    double mean = 0;
    double deviation = 1;       // of equal numbers 1
    std::vector<double> edges;  // of buckets: the first value of the next one
  };
  struct Categorical {
    std::uint64_t seed = 0;  // of its hash
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

/// Cuts a column into the parts between separators that aren't empty; without one it is a part.
std::vector<std::string_view> parts_of(std::string_view text, std::string_view separator);

}  // namespace strata
