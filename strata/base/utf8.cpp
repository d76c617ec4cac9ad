// Accepts only the shortest form of a character and no surrogate half: every decoder accepts what
// passes here.
#include "strata/base/utf8.h"

namespace strata {
namespace {

// The smallest character that needs this many bytes; longer encodings of smaller ones aren't UTF-8.
constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};

char32_t assemble(std::string_view text, std::size_t bytes) {
  if (bytes == 1) return static_cast<unsigned char>(text[0]);
  char32_t character = static_cast<unsigned char>(text[0]) & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i)
    character = character << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  return character;
}

}  // namespace

std::size_t announced_bytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >> 5 == 0b110) return 2;
  if (first >> 4 == 0b1110) return 3;
  return first >> 3 == 0b11110 ? 4 : 0;
}

std::size_t character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const std::size_t bytes = announced_bytes(static_cast<unsigned char>(text[0]));
  if (bytes <= 1) return bytes;
  if (text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if (static_cast<unsigned char>(text[i]) >> 6 != 0b10) return 0;
  const char32_t character = assemble(text, bytes);
  const bool surrogate = character >= 0xD800 && character < 0xE000;
  return character < kSmallest[bytes] || surrogate || character > 0x10FFFF ? 0 : bytes;
}

std::size_t utf8_bytes(std::string_view text) {
  std::size_t good = 0;
  while (const std::size_t bytes = character_bytes(text.substr(good))) good += bytes;
  return good;
}

char32_t first_character(std::string_view text) { return assemble(text, character_bytes(text)); }

void append_character(std::string& text, char32_t character) {
  const auto byte = [&](char32_t bits) { text += static_cast<char>(bits); };
  if (character < 0x80) return byte(character);
  if (character < 0x800) {
    byte(0xC0 | character >> 6);
  } else {
    if (character < 0x10000) {
      byte(0xE0 | character >> 12);
    } else {
      byte(0xF0 | character >> 18);
      byte(0x80 | (character >> 12 & 0x3F));
    }
    byte(0x80 | (character >> 6 & 0x3F));
  }
  byte(0x80 | (character & 0x3F));
}

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

void for_each_run(std::string_view text, const std::function<void(std::string_view, bool)>& run) {
  std::size_t begin = 0, end = 0;
  while (end < text.size()) {
    const std::size_t bytes = character_bytes(text.substr(end));
    if (bytes > 0) {
      end += bytes;
      continue;
    }
    if (end > begin) run(text.substr(begin, end - begin), true);
    run(text.substr(end, 1), false);
    begin = ++end;
  }
  if (end > begin) run(text.substr(begin), true);
}

}  // namespace strata
