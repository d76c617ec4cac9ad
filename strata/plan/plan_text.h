/// Draws a plan for the terminal: the stages, the order of work, the bytes of each rank, and what
/// it all comes to.
#pragma once

#include <string>

#include "strata/plan/planner.h"

namespace strata {

/// The grid is cut at `columns` characters; the tables are as wide as they must be, about 80.
std::string plan_text(const Plan& plan, int columns = 100);

}  // namespace strata
