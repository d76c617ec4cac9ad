/// Parses the tokens of a Jinja template into statements.
///
/// Errors  UserError with the line and column: a tag or expression that is not Jinja's, and by its
///         name what Strata does not support (include, import, extends, block, recursive loops,
///         unpacked arguments).
#pragma once

#include <string>
#include <vector>

#include "strata/jinja/lexer.h"
#include "strata/jinja/statements.h"

namespace strata {

JinjaBody parse_jinja(std::vector<JinjaToken> tokens, const std::string& name);

}  // namespace strata
