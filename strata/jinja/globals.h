/// The functions that every chat template sees: range, dict, namespace, raise_exception and
/// strftime_now.
#pragma once

#include <ctime>
#include <map>
#include <string>

#include "strata/jinja/value.h"

namespace strata {

/// `now`: what strftime_now() formats, as local time.
std::map<std::string, JinjaValue> jinja_globals(std::time_t now);

}  // namespace strata
