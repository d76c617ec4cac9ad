/// Says what the environment changes about what NCCL does between processes; for `doctor`, and refuses what no run
/// could be ended with.
///
/// With mesh.reduction=ordered nothing of it changes a bit: NCCL only moves, and sums are made in rank order.
/// With native NCCL adds, in an order that follows from its version, the machines and these variables.
#pragma once

#include <string>
#include <vector>

#include "strata/device/determinism.h"

namespace strata {

/// A sentence each for what is set.
std::vector<std::string> library_findings(const Environment& variable);

/// UserError: NCCL's calls would wait, with them whoever would end them, and a run that fails would hang.
void require_calls_that_return(const Environment& variable);

/// What holds for sums whatever is set, and what fixes their order where NCCL makes them.
std::string library_promise();

}  // namespace strata
