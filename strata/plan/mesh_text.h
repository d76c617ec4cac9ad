/// Draws what a plan's mesh exchanges: bytes that every rank sends along each axis, and the seconds
/// of the step that they explain. Empty for a pipeline alone.
///
///     sent by rank        pp        dp        tp
///                0  1.50 MiB  28.0 MiB  6.00 MiB
///                1  1.50 MiB  28.0 MiB  6.00 MiB
///
///     reduce     once a step (auto: the least communication)
///     moving     pp 4.0 ms, dp 5.6 ms, tp 9.6 ms on the busiest rank
///     exposed    pp 2.1 ms, dp 0 s, tp 12.0 ms of the step
///
/// Exposed may be more than moving: stages wait for one another's.
#pragma once

#include <string>

#include "strata/plan/planner.h"

namespace strata {

/// "2 ranks", or "8 ranks (pp 2 × dp 2 × tp 2, zero 1)".
std::string ranks_text(const Plan& plan);

std::string mesh_text(const Plan& plan);

}  // namespace strata
