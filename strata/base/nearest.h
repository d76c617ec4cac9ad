/// Finds the name that a misspelt one was meant to be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// Counts the insertions, deletions, replacements and swaps of neighbours between two names.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to `name` (the first of equals), or "" when none is near enough
/// to be a slip: more than a third of the name would have to change.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// The same for dotted paths; a right last part in another section is near too, so that
/// "train.layers" finds "model.layers".
std::string nearest_path(std::string_view path, const std::vector<std::string>& candidates);

}  // namespace strata
