/// Writes a plan as JSON: the stages, the predicted timeline and memory of every rank. The HTML
/// report and other programs read it.
///
/// Units  seconds from the start of the step, bytes; names end in their unit.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "strata/plan/planner.h"

namespace strata {

nlohmann::json to_json(const Plan& plan);

}  // namespace strata
