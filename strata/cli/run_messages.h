/// Resolves a recipe for a verb that runs it here, with its messages on standard error.
#pragma once

#include "strata/run/resolved_run.h"

namespace strata {

/// Notices are lines of their own; what is measured is named on a terminal alone.
ResolvedRun resolve_here(Recipe recipe);

}  // namespace strata
