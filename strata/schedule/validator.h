/// Refuses a schedule that cannot run, before anything runs.
///
/// Checks: every micro-batch forward then backward once per layer, producers before consumers;
/// weight gradients of a layer in ascending micro-batch order; every send matched by one receive of
/// the same message on the named peer; no deadlock (sends never wait, receives do); in-flight
/// activations within the bound; weights there when used, gradients reduced and offloaded
/// before the norm; peak bytes within the budget where a ledger is given (plan/).
///
/// Errors  UserError that holds the text grid with the failing action marked and, for a deadlock,
///         the cycle of waits rank by rank.
#pragma once

#include <vector>

#include "strata/schedule/action.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/tiers.h"
#include "strata/schedule/zero.h"

namespace strata {

struct ValidateOptions {
  bool backward = true;                   ///< false: forward-only programs
  std::vector<int> in_flight_bound = {};  ///< per rank, in stage activations; empty: unchecked
  ShardLayout shards = {};                ///< as given to lower()
  TierLayout tiers = {};                  ///< as given to lower()
};

/// What was counted on the way, for tests and plans.
struct Validation {
  std::vector<int> peak_in_flight;  ///< per rank: most stage forwards awaiting their backward
};

Validation validate(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                    const ValidateOptions& options);

}  // namespace strata
