/// Evens out the work of ranks that hold several stages each.
///
/// The partitioner makes the slowest stage fast, which leaves a rank with two long stages and
/// another with two short ones. Here layers move between neighbouring stages as long as the slowest
/// rank becomes faster.
#pragma once

#include "strata/plan/search/partition.h"

namespace strata {

/// Returns a cut of which no move of one boundary by one layer makes a better one.
Partition with_even_ranks(const Dataflow& dataflow, const CostTable& costs,
                          const PartitionRequest& request, Partition cut);

}  // namespace strata
