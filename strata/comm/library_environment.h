/// Reports how the environment changes what NCCL does between processes, for `doctor`, and rejects
/// settings under which a failed run could not end.
///
/// With mesh.reduction=ordered the environment changes no bits: NCCL only moves data, and sums are
/// made in rank order. With native, NCCL sums in an order that follows from its version, the
/// machines and these variables.
#pragma once

#include <string>
#include <vector>

#include "strata/device/determinism.h"

namespace strata {

/// One sentence for each variable that is set.
std::vector<std::string> library_warnings(const Environment& variable);

/// Rejects settings that make NCCL's calls wait: the thread that would abort them would wait, too,
/// and a failed run would hang.
/// Errors  UserError.
void require_calls_that_return(const Environment& variable);

/// What holds for sums under any setting, and what fixes their order if NCCL computes them.
std::string library_promise();

}  // namespace strata
