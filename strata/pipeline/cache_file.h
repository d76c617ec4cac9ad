/// Reads and writes the JSON objects that a user's measurements are kept in between runs.
///
/// A file that cannot be read or written only costs the time of measuring again.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace strata {

/// $XDG_CACHE_HOME/strata/NAME or ~/.cache/strata/NAME; empty if neither is set.
std::string default_cache_file(const std::string& name);

/// An empty object if there is no such file or no object in it.
nlohmann::json read_cache_file(const std::string& file);

/// Makes the folder; readers see the old file or the new one.
void write_cache_file(const std::string& file, const nlohmann::json& json);

}  // namespace strata
