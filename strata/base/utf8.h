/// Reads characters of text that may not be UTF-8, and writes characters as UTF-8.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace strata {

/// Bytes of a character that begins with this byte; 0 if no character does.
std::size_t announced_bytes(unsigned char first);

/// Bytes of the first character of a text; 0 if it isn't UTF-8.
std::size_t character_bytes(std::string_view text);

/// Bytes before the first one that is not UTF-8; the size of the text if all are.
std::size_t utf8_bytes(std::string_view text);

/// Returns the first character; `text` must begin with one.
char32_t first_character(std::string_view text);

/// `character`: at most U+10FFFF.
void append_character(std::string& text, char32_t character);

bool is_white_space(char32_t character);

/// Calls `run(part, true)` for each longest UTF-8 part and `run(byte, false)` for each other byte,
/// in order.
void for_each_run(std::string_view text, const std::function<void(std::string_view, bool)>& run);

}  // namespace strata
