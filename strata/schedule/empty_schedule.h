/// The frame that all builders fill: the ranks of the stages, and programs without actions.
#pragma once

#include "strata/schedule/builders.h"

namespace strata {

/// Errors  UserError on counts below 1 or a number of stages that the kind does not have.
Schedule empty_schedule(ScheduleKind kind, const PipelineShape& shape);

}  // namespace strata
