/// Finds the columns of a file that a recipe reads, and rejects samples with an invalid label,
/// number, id or weight.
///
/// Errors  UserError: a missing column, with the nearest name; a value, with file, line and column.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/tabular/column_text.h"
#include "strata/tabular/options.h"
#include "strata/tabular/sample_file.h"

namespace strata {

/// Columns of one file, by the features of a recipe.
struct SampleColumns {
  SampleColumns(const SampleFile& file, const TabularOptions& options);

  int label = 0;
  int group = -1;  ///< none
  std::vector<int> numeric, categorical;
};

/// The parsed text between two separators.
struct WrittenId {
  std::string_view id;
  float weight = 1;  ///< with pool: weighted
};

/// The texts of a sample's ids that a feature reads; `text` is the feature's column.
std::vector<std::string_view> read_parts(const CategoricalOptions& options, const ColumnText& text);
WrittenId written_id(const CategoricalOptions& options, const ColumnText& text,
                     std::string_view part);

/// Rejects samples that a recipe cannot read.
class SampleCheck {
 public:
  /// Both must outlive the check.
  SampleCheck(const SampleFile& file, const TabularOptions& options);

  void check(std::int64_t sample, std::span<const std::string_view> fields) const;

 private:
  const SampleFile& file_;
  const TabularOptions& options_;
  SampleColumns columns_;
  std::vector<std::size_t> written_;  // categorical features for which some texts are not ids
};

/// As open_samples(). In a text file the pass that finds the lines also checks all values that
/// `options`, after complete(), read; those of records are checked when they are read.
std::shared_ptr<const SampleFile> open_checked_samples(const std::string& path,
                                                       const TabularOptions& options);

}  // namespace strata
