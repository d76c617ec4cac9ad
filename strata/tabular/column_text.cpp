#include "strata/tabular/column_text.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"

namespace strata {

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool parse_finite(std::string_view text, double& value) {
  text = trim_blanks(text);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return false;
  }
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && std::isfinite(value);
}

std::optional<double> feature_number(std::string_view text) {
  double value = 0;
  if (!parse_finite(text, value) || std::fabs(value) > std::numeric_limits<float>::max())
    return std::nullopt;
  return value;
}

std::optional<std::uint64_t> whole_number(std::string_view text) {
  const std::string_view digits = trim_blanks(text);
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

double ColumnText::number(std::string_view part) const {
  if (const std::optional<double> value = feature_number(part)) return *value;
  refuse("this is no number", "a finite number of 32 bits, or nothing", part,
         "correct or remove the line; a number that is missing is an empty column");
}

double ColumnText::number_of_feature() const {
  const std::string_view written = trim_blanks(text);
  // A word instead of a malformed number: the whole column probably contains words.
  const bool is_word =
      written.find_first_of("0123456789") == std::string_view::npos &&
      written.find_first_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") !=
          std::string_view::npos;
  if (!is_word || feature_number(text)) return number(text);
  refuse("this is no number", "a finite number of 32 bits, or nothing", text,
         "name a column of texts in data.categorical, not in data.numeric; or correct the line");
}

std::uint64_t ColumnText::id(std::string_view part) const {
  if (const std::optional<std::uint64_t> value = whole_number(part)) return *value;
  refuse("this is no id", "a whole number below 2^64", part,
         "correct or remove the line, or set ids: hash");
}

float ColumnText::label(const std::string& positive) const {
  const std::string_view written = trim_blanks(text);
  if (!positive.empty()) {
    if (written.empty())
      refuse("a sample without a label", quote(positive) + ", or another text that means 0", text,
             "remove the line");
    return written == positive ? 1.0F : 0.0F;
  }
  double value = 0;
  if (parse_finite(written, value)) {
    if (value == 0 || value == -1) return 0;
    if (value == 1) return 1;
  }
  refuse("this is no label", "0 or 1", text,
         "set data.label to the column of labels, and data.positive to the text that means 1");
}

void ColumnText::refuse(const std::string& what, const std::string& expected, std::string_view got,
                        const std::string& fix) const {
  throw UserError({.operation = "tabular.read",
                   .where = file.place(sample) + ", column " +
                            quote(file.columns()[static_cast<std::size_t>(column)]),
                   .what = what,
                   .expected = expected,
                   .got = quote(got),
                   .fix = fix});
}

}  // namespace strata
