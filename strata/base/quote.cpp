#include "strata/base/quote.h"

namespace strata {
namespace {

bool starts_character(char c) { return (c & 0xC0) != 0x80; }

std::string escaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      line += std::string("\\x") + kDigits[c >> 4] + kDigits[c & 0xF];
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

std::string_view beginning(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && !starts_character(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

std::string quote(std::string_view text) {
  constexpr std::size_t kKept = kLongestQuotation - 26;  // room for the length behind it
  const std::string line = escaped(beginning(text, kLongestQuotation));
  if (text.size() <= kLongestQuotation && line.size() + 2 <= kLongestQuotation)
    return "'" + line + "'";
  return "'" + std::string(beginning(line, kKept)) + "...' (" + std::to_string(text.size()) +
         " bytes)";
}

}  // namespace strata
