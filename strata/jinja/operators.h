/// Performs Python's operators on values of a template.
///
/// Errors  JinjaProblem: operands that Python refuses, an int beyond 64 bits, a division by zero.
#pragma once

#include <string>

#include "strata/jinja/value.h"

namespace strata {

/// `operation`: + - * / // % ** or ~ (joins the texts of both).
JinjaValue operate(const std::string& operation, const JinjaValue& a, const JinjaValue& b,
                   JinjaMeter& meter);

/// `operation`: == != < <= > >= "in" "not in".
bool compares(const std::string& operation, const JinjaValue& a, const JinjaValue& b);

JinjaValue negative_of(const JinjaValue& value);

}  // namespace strata
