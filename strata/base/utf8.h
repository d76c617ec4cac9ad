/// Walks over text that may not be UTF-8.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace strata {

/// Bytes of a character that begins with this one; 0: no character does.
std::size_t announced_bytes(unsigned char first);

/// Bytes of the character at the front of a text; 0: what is there isn't UTF-8.
std::size_t character_bytes(std::string_view text);

/// Bytes before the first that is not UTF-8; the size of the text where all are.
std::size_t utf8_bytes(std::string_view text);

/// The character at the front; `text` must begin with one.
char32_t first_character(std::string_view text);

std::string to_utf8(char32_t character);

bool is_white_space(char32_t character);

/// Calls `run(part, true)` for each longest run of UTF-8 and `run(byte, false)` for each byte that
/// belongs to none, in order.
void for_each_run(std::string_view text, const std::function<void(std::string_view, bool)>& run);

}  // namespace strata
