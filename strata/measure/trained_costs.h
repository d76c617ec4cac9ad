/// Replaces the seconds of a plan's layers by those that training has measured.
#pragma once

#include <vector>

#include "strata/layout/costs.h"
#include "strata/pipeline/layer_seconds.h"

namespace strata {

/// `trained`: by layer; parts that were not measured keep the seconds of `costs`. Spans of ranks
/// that share a device include each other's work, so the result has no shared devices. `updates`:
/// also those of updates, which training does not measure if replicas send signs.
CostTable with_trained_seconds(CostTable costs, const std::vector<LayerSeconds>& trained,
                               bool updates = true);

}  // namespace strata
