/// Finds where a value of a JSON text stands, for errors about what it says.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata {

/// ":3:9", line and column of the value under these keys, one inside the other; of one given twice the last. Empty
/// where there is none. The text has been parsed: it is JSON.
std::string json_place(std::string_view text, std::span<const std::string> keys);

}  // namespace strata
