/// Runs a schedule on clocks instead of devices: the same programs, the same interpreter, no
/// tensors.
///
/// A send takes no time of its own; its message arrives a transfer later, however many are on the
/// way. A recompute costs its layer's forward. A tied weight or gradient travels at the mean rate
/// of the values. The gradient norm is a collective: no rank leaves it before the last has come.
/// Replicas are taken to be in step: fetches and reductions of a rank run one after another beside
/// its compute, which waits for what it needs; the exchange of updated weights runs alone.
///
/// Units   seconds from the start of the step.
/// Cost    linear in the number of actions.
/// Errors  InternalError when the programs block each other; validate() says where and why.
#pragma once

#include <vector>

#include "strata/schedule/action.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/trace.h"

namespace strata {

/// What one rank did and when.
struct RankTimeline {
  double busy_seconds = 0;         ///< forward, recompute, backward, update
  double idle_seconds = 0;         ///< the rest of the step
  std::vector<TraceEvent> events;  ///< one an action of the program, in its order; a receive's
                                   ///< event is its wait
};

/// An action's place in the programs.
struct ActionRef {
  int rank = 0;
  int position = 0;
};

struct Simulation {
  double step_seconds = 0;
  double bubble = 0;  ///< idle fraction of all ranks' time
  std::vector<RankTimeline> ranks;
  std::vector<ActionRef> order;  ///< all actions by time: of their begin; receives, of their end
};

/// Seconds of what replicas do together, per layer; empty: it takes no time.
struct CollectiveSeconds {
  std::vector<double> fetch;   ///< to collect weights
  std::vector<double> reduce;  ///< to add gradients
  std::vector<double> gather;  ///< to exchange updated weights
};

Simulation simulate(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                    const CostTable& costs, const CollectiveSeconds& collectives = {});

}  // namespace strata
