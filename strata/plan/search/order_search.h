/// Searches an order of forwards and halves of backwards for the costs of a cut.
#pragma once

#include <vector>

#include "strata/layout/costs.h"
#include "strata/layout/dataflow.h"
#include "strata/schedule/zero_bubble_search.h"

namespace strata {

struct OrderRequest {
  const Dataflow& dataflow;
  const CostTable& costs;
  const Partition& partition;  ///< one stage a rank
  const LayerSet& recompute;
  int micro_batches = 1;
  /// The most that a rank may hold, in micro-batches of its activations and as a multiple of the
  /// ranks: 1 is what 1F1B's first rank holds.
  double activations = 1;
};

Schedule searched_order(const OrderRequest& request);

/// Per rank: the costs of its stage.
std::vector<StageCosts> stage_costs(const OrderRequest& request);

/// The seconds of the longest message between stages.
double longest_transfer(const OrderRequest& request);

}  // namespace strata
