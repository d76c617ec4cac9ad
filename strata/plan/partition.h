/// Cuts a model's layers into stages so that the slowest stage is as fast as can be.
///
/// A stage costs its forwards, backwards and recomputes and the transfers that it waits for. Among
/// equally fast cuts the one whose fullest stage needs least memory wins, then the one that moves
/// fewest bytes between stages.
///
/// With one stage a rank the cut is optimal, under the cap too. With several, the stages themselves
/// are balanced without the cap and the sum of each rank is checked; if a rank breaks its cap,
/// every stage gets an equal part of it instead, which respects the cap but may miss a faster cut.
///
/// Source  min-max dynamic programming, D[j][i] = min over q of max(D[j-1][q], cost(q, i)).
/// Units   bytes as StageEstimate has them: near the ledger's, which decides.
/// Cost    linear in layers beside the searches, which take about stages^3 steps, however many layers
///         there are, if no layer outweighs many others; else up to stages * layers^2, and beyond
///         20 million steps the model is cut at every second, fourth, ... layer only.
/// Errors  UserError: counts below 1, more stages than layers (the fix names the most ranks there
///         can be).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "strata/schedule/costs.h"
#include "strata/schedule/dataflow.h"

namespace strata {

struct PartitionRequest {
  int ranks = 1;
  int virtual_stages = 1;           ///< per rank; stage s lives on rank s mod ranks
  std::vector<int> in_flight = {};  ///< per rank, in stage activations; empty: one a stage
  std::vector<std::int64_t> device_bytes = {};  ///< per rank; empty: no cap
  LayerSet recompute = {};
};

/// Nothing if no cut fits the cap.
std::optional<Partition> partition_layers(const Dataflow& dataflow, const CostTable& costs,
                                          const PartitionRequest& request);

}  // namespace strata
