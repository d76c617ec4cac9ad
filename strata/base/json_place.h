/// Finds line and column of a value in a JSON text, for errors about the value.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata {

/// Returns ":3:9", line and column of the value under these nested keys; for a repeated key, of the
/// last one. Returns "" if there is none. `text` must be valid JSON.
std::string json_place(std::string_view text, std::span<const std::string> keys);

}  // namespace strata
