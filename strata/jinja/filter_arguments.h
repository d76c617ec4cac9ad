/// Reads the arguments of a filter, and names the groups of filters whose tables filters.cpp joins.
///
/// Errors  JinjaProblem: an argument of another type, or too many.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "strata/jinja/value.h"

namespace strata {

using JinjaFilter = JinjaValue (*)(const JinjaValue& input, const JinjaCall& call);
using JinjaFilters = std::map<std::string, JinjaFilter>;

const JinjaFilters& number_filters();  ///< abs, int, round, ...
const JinjaFilters& text_filters();    ///< trim, replace, tojson, ...
const JinjaFilters& list_filters();    ///< join, sort, map, selectattr, ...

/// The arguments by parameter; none where the caller passed none.
using BoundArguments = std::vector<std::optional<JinjaValue>>;
using JinjaArgument = std::optional<JinjaValue>;

bool flag_argument(const JinjaArgument& argument, bool otherwise);
std::int64_t whole_argument(const JinjaArgument& argument, std::int64_t otherwise);
std::string text_argument(const JinjaArgument& argument, const std::string& otherwise);
void refuse_arguments(const std::string& filter, const JinjaCall& call);

}  // namespace strata
