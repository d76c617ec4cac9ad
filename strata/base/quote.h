/// Quotes the user's input in a message, so that the message stays readable whatever the input is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace strata {

inline constexpr std::size_t kLongestQuotation = 80;  ///< bytes

/// Puts `text` between quotation marks, on one line: control characters are written as escapes; of a
/// long text the beginning and its length stay: `'abc...' (1048576 bytes)`.
std::string quote(std::string_view text);

/// The longest beginning of at most `bytes` bytes that ends between two characters of UTF-8.
std::string_view beginning(std::string_view text, std::size_t bytes);

}  // namespace strata
