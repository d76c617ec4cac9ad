/// Reads a pattern character by character, and names the place of what is refused.
///
/// Errors  UserError: a text that is not UTF-8, or longer than kMostPatternBytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "strata/base/error_source.h"

namespace strata {

class PatternText {
 public:
  static constexpr char32_t kEnd = UINT32_MAX;  ///< peek() at the end

  /// `errors` and the text must outlive this object.
  PatternText(std::string_view text, const ErrorSource& errors);

  bool done() const { return at_ == text_.size(); }
  char32_t peek() const;
  bool sees(std::string_view next) const { return text_.substr(at_).starts_with(next); }
  bool take(std::string_view next);  ///< whether the text continued with it
  char32_t take();                   ///< refuses the end
  void expect(std::string_view next);

  /// A decimal number of at most `most`; refuses others.
  std::uint32_t number(std::uint32_t most);
  bool sees_digit() const;
  /// A character that is written as so many hexadecimal digits.
  char32_t hexadecimal(int digits);

  std::size_t position() const { return at_; }
  void go_back(std::size_t position) { at_ = position; }
  std::string_view since(std::size_t position) const {
    return text_.substr(position, at_ - position);
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& expected) const;

 private:
  std::string_view text_;
  const ErrorSource& errors_;
  std::size_t at_ = 0;
};

/// Repetitions in patterns have at most this bound.
inline constexpr std::uint32_t kMostRepetitions = 1'000'000;
inline constexpr std::size_t kMostPatternBytes = std::size_t{1} << 20;
inline constexpr int kMostGroups = 200;  ///< within one another

}  // namespace strata
