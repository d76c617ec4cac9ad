/// Rejects a schedule that cannot run, before anything runs.
///
/// Checks: every micro-batch runs forward then backward once per layer, producers before consumers;
/// weight gradients of a layer accumulate in ascending micro-batch order; every send is matched by
/// one receive of the same message on the named peer; no deadlock (sends never wait, receives do);
/// in-flight activations within the bound; weights are fetched when used, gradients reduced and
/// offloaded before the norm; peak bytes within the budget where a ledger is given (plan/).
///
/// Errors  UserError that holds the text grid with the failing action marked and, for a deadlock,
///         the cycle of waits rank by rank.
#pragma once

#include <vector>

#include "strata/layout/dataflow.h"
#include "strata/layout/tiers.h"
#include "strata/layout/zero.h"
#include "strata/schedule/action.h"

namespace strata {

struct ValidateOptions {
  bool backward = true;  ///< false: forward-only programs
  /// per rank, in stage activations; empty: not checked
  std::vector<int> in_flight_bound = {};
  ShardLayout shards = {};  ///< as passed to lower()
  TierLayout tiers = {};    ///< as passed to lower()
};

/// Counts made during validation, for tests and plans.
struct Validation {
  /// per rank: the most stage forwards that awaited their backward at once
  std::vector<int> peak_in_flight;
};

Validation validate(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                    const ValidateOptions& options);

}  // namespace strata
