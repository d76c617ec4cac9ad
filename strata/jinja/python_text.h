/// Writes and cuts text as Python's str does: by characters, with Python's white space, repr and
/// numbers.
///
/// Texts are UTF-8; positions and lengths count characters. A byte that is not UTF-8 counts as one.
/// Upper and lower case map one character to one, except ß to SS (Python maps a few other
/// characters to several, and ß to Ss at the beginning of a word).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

std::vector<std::string_view> characters(std::string_view text);
std::int64_t character_count(std::string_view text);

/// Returns the part that `text[start:stop:step]` means; see slice_positions().
std::string slice_of(std::string_view text, std::optional<std::int64_t> start,
                     std::optional<std::int64_t> stop, std::int64_t step);

/// The positions that a slice of `length` items visits. `step` is not 0.
std::vector<std::int64_t> slice_positions(std::int64_t length, std::optional<std::int64_t> start,
                                          std::optional<std::int64_t> stop, std::int64_t step);

bool is_space(std::string_view character);

/// Removes characters at the ends: white space, or those in `set`.
std::string_view strip(std::string_view text, const std::string* set, bool left, bool right);

/// str.split(separator, most): at runs of white space without a separator. `most` < 0: no limit.
std::vector<std::string> split(std::string_view text, const std::string* separator,
                               std::int64_t most, bool from_right);
std::vector<std::string> split_lines(std::string_view text);
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t most);

std::int64_t word_count(std::string_view text);  ///< runs of letters, digits and underscores

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);  ///< str.title()
std::string capitalize(std::string_view text);

std::string repr_of(std::string_view text);  ///< with Python's quotation marks and escapes
std::string text_of(double value);           ///< repr(float): "1.0", "1e-05", "inf"

}  // namespace strata
