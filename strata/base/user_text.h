/// Puts user text into messages: quotes it so that the message stays readable, and suggests the
/// name that a misspelt one probably means.
///
/// Errors  check_choice throws UserError.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

inline constexpr std::size_t kLongestQuotation = 80;  ///< bytes

/// Quotes `text` on one line. Control characters and bytes that are not UTF-8 become escapes. A
/// long text is cut, and its length follows: `'abc...' (1048576 bytes)`.
std::string quote(std::string_view text);

/// Like quote(), but without quotation marks and length, and control characters become spaces: for
/// names and values from files.
std::string excerpt(std::string_view text);

/// Returns the longest prefix of at most `bytes` bytes that ends between two UTF-8 characters.
std::string_view beginning(std::string_view text, std::size_t bytes);

/// Counts the insertions, deletions, replacements and swaps of neighbours between two names.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to `name` (the first of equals), or "" if more than a third of the
/// name would have to change.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// The same for dotted paths. An exact last part in another section also counts as near:
/// "train.layers" finds "model.layers".
std::string nearest_path(std::string_view path, const std::vector<std::string>& candidates);

/// Throws UserError, with the nearest choice, if `text` is not one of a field's choices.
void check_choice(const std::string& path, const std::string& text,
                  const std::vector<std::string>& choices, const std::string& where);

}  // namespace strata
