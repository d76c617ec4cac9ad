/// Finds an order of forwards and halves of backwards for measured times and a limit of memory.
///
/// Source  the heuristic of Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (ZB-1p with the
///         memory of 1F1B, ZB-2p with twice as much).
/// Cost    O(ranks x ranks x micro_batches) for each of eight variants.
#pragma once

#include <vector>

#include "strata/schedule/builders.h"

namespace strata {

/// One stage, which is one rank.
struct StageCosts {
  double forward = 0, input = 0, weight = 0;  ///< seconds of a micro-batch
  /// Memory in any unit: of a forward until the first half, and between the halves.
  double saved = 1, kept = 0;
  double most = 0;  ///< that the rank may hold; at least `saved`
};

struct SearchedSchedule {
  Schedule schedule;
  /// The longest time between a rank's first and last action.
  double seconds = 0;
};

/// The most memory that a rank holds at once, in the units of its costs.
double most_held(const Program& program, const StageCosts& costs);

/// The best order of the heuristic, ZB-H1 and ZB-H2. `transfer`: seconds of a message between
/// neighbours.
/// Errors  UserError on counts below 1; InternalError unless there is one stage a rank.
SearchedSchedule search_zero_bubble(const std::vector<StageCosts>& stages, int micro_batches,
                                    double transfer);

/// The same time, of any order of whole stages with one stage a rank.
double seconds_of(const Schedule& order, const std::vector<StageCosts>& stages, double transfer);

}  // namespace strata
