/// Applies the filters (`value | name`) and tests (`value is name`) of Jinja.
///
/// Supported: those that chat templates use; check_filter() and check_test() refuse others by name
/// when the template is parsed.
#pragma once

#include <string>

#include "strata/jinja/token_reader.h"
#include "strata/jinja/value.h"

namespace strata {

JinjaValue apply_filter(const std::string& name, const JinjaValue& value, const JinjaCall& call);
bool apply_test(const std::string& name, const JinjaValue& value, const JinjaCall& call);

/// UserError: Strata has no filter or test of that name.
void check_filter(const std::string& name, JinjaPlace place, const JinjaTokenReader& reader);
void check_test(const std::string& name, JinjaPlace place, const JinjaTokenReader& reader);

}  // namespace strata
