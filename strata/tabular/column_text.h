/// Parses numbers and ids in the text of a column.
///
/// Errors  UserError at the text's place: "clicks.tsv:17, column 'age'".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "strata/tabular/sample_file.h"

namespace strata {

std::string_view trim_blanks(std::string_view text);

/// False unless all of `text` is a finite number; a leading plus is allowed.
bool parse_finite(std::string_view text, double& value);

/// The same for a number that fits 32 bits, and for a whole number below 2^64; blanks around it are
/// ignored.
std::optional<double> feature_number(std::string_view text);
std::optional<std::uint64_t> whole_number(std::string_view text);

/// One column of one sample.
struct ColumnText {
  const SamplePlaces& file;
  std::int64_t sample;
  int column;
  std::string_view text;

  bool is_missing() const { return trim_blanks(text).empty(); }
  double number(std::string_view part) const;
  double number_of_feature() const;  ///< for a column that data.numeric names
  std::uint64_t id(std::string_view part) const;

  /// 1 if the text is `positive`; without `positive`, 0 and 1 stand for themselves, and libsvm's -1
  /// is 0.
  float label(const std::string& positive) const;

  [[noreturn]] void refuse(const std::string& what, const std::string& expected,
                           std::string_view got, const std::string& fix) const;
};

}  // namespace strata
