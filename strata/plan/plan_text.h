/// Draws a plan for the terminal: the stages, the order of work, the bytes of each rank, and what it
/// all comes to.
#pragma once

#include <string>

#include "strata/plan/planner.h"

namespace strata {

/// Lines fit `columns` characters but for very long layer names; the grid is cut.
std::string plan_text(const Plan& plan, int columns = 100);

}  // namespace strata
