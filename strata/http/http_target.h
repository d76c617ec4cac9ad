/// Decodes the target of an HTTP request: the segments of its path and the values of its query.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/http/routes.h"

namespace strata {

/// Writes the path and the query of a target: "/a?b" or "http://host/a?b".
void split_target(std::string_view target, HttpRequest& request);

/// Replaces escapes such as %41. None: an escape is broken, or the result holds a zero byte or is
/// not UTF-8.
std::optional<std::string> percent_decoded(std::string_view text);

/// The decoded segments of a path that begins with '/'. None: the path is malformed, or a segment
/// holds a control character.
std::optional<std::vector<std::string>> path_segments(std::string_view path);

/// The decoded names and values of "a=1&b=x+y". None: an escape is broken.
std::optional<HttpFields> query_fields(std::string_view query);

/// Whether a segment may be a parameter: no part between its slashes is empty, "." or "..", and it
/// has no backslash.
bool is_plain_name(std::string_view segment);

}  // namespace strata
