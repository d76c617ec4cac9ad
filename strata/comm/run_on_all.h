/// Performs an action on every rank of a group, so that all continue or all fail.
///
/// Threads  collective: all ranks of the group call the same functions in the same order.
/// Cost     one message to rank 0 and one back.
/// Errors   throws the error of the lowest rank whose action failed, on every rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/comm/group.h"

namespace strata {

/// Waits for all. Returns the results in rank order on rank 0, nothing on the others.
std::vector<std::string> gather(Group& group, const std::function<std::string()>& action);

/// The same for actions that return nothing.
void run_on_all(Group& group, const std::function<void()>& action);

}  // namespace strata
