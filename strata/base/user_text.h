/// Puts the user's own words into messages: quoted, so that a message stays readable whatever they
/// are, and with the name that a misspelt one was meant to be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

inline constexpr std::size_t kLongestQuotation = 80;  ///< bytes

/// Puts `text` between quotation marks, on one line: control characters, and bytes that are not UTF-8, are written as escapes; of a
/// long text the beginning and its length stay: `'abc...' (1048576 bytes)`.
std::string quote(std::string_view text);

/// The same without quotation marks and without the length, control characters as spaces: for names
/// and values from files.
std::string excerpt(std::string_view text);

/// The longest beginning of at most `bytes` bytes that ends between two characters of UTF-8.
std::string_view beginning(std::string_view text, std::size_t bytes);

/// Counts the insertions, deletions, replacements and swaps of neighbours between two names.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to `name` (the first of equals), or "" when none is near enough
/// to be a slip: more than a third of the name would have to change.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// The same for dotted paths; a right last part in another section is near too, so that
/// "train.layers" finds "model.layers".
std::string nearest_path(std::string_view path, const std::vector<std::string>& candidates);

/// Refuses a text that is none of a field's choices, and names the nearest one.
void check_choice(const std::string& path, const std::string& text,
                  const std::vector<std::string>& choices, const std::string& where);

}  // namespace strata
