/// Lays out the compute actions of a step by the one pattern that all builders share.
///
/// A rank forwards its stages in groups of micro-batches: the first stage for every micro-batch of
/// the group, then its second stage, and so on; backwards likewise from the last stage to the
/// first. The n-th backward comes right after forward number n + warm_up. What tells GPipe, 1F1B
/// and interleaved 1F1B apart is the size of a group and the length of the warm-up.
#pragma once

#include <functional>
#include <string>

#include "strata/schedule/builders.h"

namespace strata::schedule {

struct Order {
  int group = 1;         ///< micro-batches that pass one stage before the rank's next stage starts
  int warm_up = 0;       ///< forwards before the first backward; more than there are: all
  bool backward = true;  ///< false: forwards only
};

/// Builds every rank's program by `order_of`. Throws UserError on counts below 1.
Schedule arrange(const std::string& name, Shape shape, const std::function<Order(int)>& order_of);

/// Counts the forwards of a rank before its first backward in (interleaved) 1F1B: just enough for
/// the first gradient to be there when it is wanted.
int warm_up_1f1b(Shape shape, int rank);

}  // namespace strata::schedule
