/// Resolves a recipe for a verb that runs it here; prints its messages on standard error.
#pragma once

#include "strata/run/resolved_run.h"

namespace strata {

/// `measure`: whether an open micro-batch may measure layers. A notice is a line of its own.
/// Progress of measurements is printed on a terminal only.
ResolvedRun resolve_here(Recipe recipe, bool measure = true);

}  // namespace strata
