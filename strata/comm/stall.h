/// Follows who waits for whom, to the rank that everybody waits for.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strata/comm/activity.h"

namespace strata {

struct Stall {
  int culprit = 0;
  double seconds = 0;  ///< without any progress of waiter and culprit
  std::string text;    ///< "rank 3 waits at position 17 for ... from rank 7, last seen in ..."
};

/// A wait is no stall as long as the rank waited for makes progress.
std::optional<Stall> diagnose(const std::vector<Activity>& activities, int waiter, double seconds,
                              const std::function<std::string(int rank)>& name_of);

}  // namespace strata
