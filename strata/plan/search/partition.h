/// Cuts a model's layers into stages so that the slowest stage is as fast as possible.
///
/// A stage costs its forwards, backwards and recomputes and the transfers that it waits for. Among
/// equally fast cuts, the one whose fullest stage needs the least memory wins, then the one that
/// moves the fewest bytes between stages.
///
/// With one stage per rank the cut is optimal, also under the cap. With several, stages are
/// balanced without the cap and the sum of each rank is checked; if a rank exceeds its cap, every
/// stage gets an equal part of it instead, which respects the cap but may miss a faster cut.
///
/// Source  min-max dynamic programming, D[j][i] = min over q of max(D[j-1][q], cost(q, i)).
/// Units   bytes as in StageEstimate: near those of the ledger, which decides.
/// Cost    linear in layers, plus searches of about stages^3 steps for any number of layers, if no
///         layer outweighs many others. Otherwise up to stages * layers^2; beyond 20 million steps
///         only every second, fourth, ... layer is a possible boundary.
/// Errors  UserError: counts below 1, more stages than layers (the fix names the largest possible
///         number of ranks).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/layout/dataflow.h"

namespace strata {

struct PartitionRequest {
  int ranks = 1;
  int virtual_stages = 1;               ///< per rank
  std::vector<int> rank_of_stage = {};  ///< empty: stage s is on rank s mod ranks
  std::vector<int> in_flight = {};      ///< per rank, in stage activations; empty: one per stage
  std::vector<std::int64_t> device_bytes = {};  ///< per rank; empty: no cap
  LayerSet recompute = {};
};

/// Returns nothing if no cut fits the cap.
std::optional<Partition> partition_layers(const Dataflow& dataflow, const CostTable& costs,
                                          const PartitionRequest& request);

}  // namespace strata
