/// Says why nothing fits, with the bytes of every rank, and looks for the nearest settings that do.
#pragma once

#include "strata/plan/planner.h"

namespace strata {

/// Tries, in this order: recompute `auto`, schedule 1f1b, both, with replicas higher stages of
/// ZeRO, smaller micro-batches, more ranks; if none fits, the smallest budget for the best of them
/// on the same ranks. `plan` is the best that the request itself gives.
[[noreturn]] void refuse(const PlanRequest& request, const Plan& plan);

}  // namespace strata
