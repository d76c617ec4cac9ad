/// Finds an operation by its name in traces, for traces that come from elsewhere.
#pragma once

#include <optional>
#include <string_view>

#include "strata/schedule/action.h"

namespace strata {

/// The operation of which kind_of() is `name`; nothing if none is.
std::optional<Op> op_named(std::string_view name);

}  // namespace strata
