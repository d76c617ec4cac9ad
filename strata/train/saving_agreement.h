/// Makes all ranks of a group fail with the same error when one of them fails.
///
/// Threads  collective: every rank calls attempt() for the same actions in the same order.
/// Errors   the error of the lowest rank whose action failed, on every rank.
#pragma once

#include <functional>

#include "strata/comm/group.h"

namespace strata {

/// Performs this rank's action, then waits for the others'.
void attempt(Group& group, const std::function<void()>& action);

}  // namespace strata
