#include "strata/grammar/pattern_text.h"

#include <algorithm>

#include "strata/base/user_text.h"
#include "strata/base/utf8.h"

namespace strata {
namespace {

int digit_of(char32_t character, int base) {
  int digit = base;
  if (character >= '0' && character <= '9') digit = static_cast<int>(character - '0');
  if (character >= 'a' && character <= 'f') digit = static_cast<int>(character - 'a') + 10;
  if (character >= 'A' && character <= 'F') digit = static_cast<int>(character - 'A') + 10;
  return digit < base ? digit : -1;
}

}  // namespace

PatternText::PatternText(std::string_view text, const ErrorSource& errors)
    : text_(text), errors_(errors) {
  if (text.size() > kMostPatternBytes)
    throw errors_.user("", "the text is too long",
                       "at most " + std::to_string(kMostPatternBytes) + " bytes",
                       std::to_string(text.size()));
  if ((at_ = utf8_bytes(text)) < text.size()) refuse("the text is not UTF-8", "UTF-8");
  at_ = 0;
}

char32_t PatternText::peek() const { return done() ? kEnd : first_character(text_.substr(at_)); }

bool PatternText::take(std::string_view next) {
  if (!sees(next)) return false;
  at_ += next.size();
  return true;
}

char32_t PatternText::take() {
  if (done()) refuse("the text ends too early", "a character");
  const char32_t character = peek();
  at_ += character_bytes(text_.substr(at_));
  return character;
}

void PatternText::expect(std::string_view next) {
  if (!take(next)) refuse("a part is missing", "'" + std::string(next) + "'");
}

bool PatternText::sees_digit() const { return digit_of(peek(), 10) >= 0; }

std::uint32_t PatternText::number(std::uint32_t most) {
  if (!sees_digit()) refuse("a part is missing", "a number");
  std::uint64_t value = 0;
  while (sees_digit()) {
    value = value * 10 + static_cast<std::uint64_t>(digit_of(take(), 10));
    if (value > most) refuse("the number is too large", "at most " + std::to_string(most));
  }
  return static_cast<std::uint32_t>(value);
}

char32_t PatternText::hexadecimal(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const int digit = digit_of(peek(), 16);
    if (digit < 0) refuse("an escape is too short", std::to_string(digits) + " hexadecimal digits");
    value = value * 16 + static_cast<char32_t>(digit);
    take();
  }
  const bool is_surrogate = value >= 0xD800 && value < 0xE000;
  if (is_surrogate || value > 0x10FFFF)
    refuse("an escape is no character", "a character of Unicode");
  return value;
}

void PatternText::refuse(const std::string& what, const std::string& expected) const {
  const std::string_view before = text_.substr(0, at_);
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::size_t begin = before.rfind('\n') + 1;  // 0: the first line
  throw errors_.user("line " + std::to_string(line) + ", column " + std::to_string(at_ - begin + 1),
                     what, expected, done() ? "the end" : excerpt(text_.substr(at_, 20)));
}

}  // namespace strata
