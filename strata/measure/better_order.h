/// Searches the order of a `zb` schedule again, with the seconds that training has measured.
///
/// Only the order changes. The cut, the places of layers and all results stay the same.
#pragma once

#include <optional>
#include <vector>

#include "strata/pipeline/layer_seconds.h"
#include "strata/plan/search/planner.h"

namespace strata {

struct BetterOrder {
  Schedule order;             ///< of whole stages
  Simulation simulation;      ///< of a step, with the measured seconds
  double before_seconds = 0;  ///< of a step in the present order, with the same seconds
};

/// Nothing: no order that holds at most as much memory on every rank is at least 1 % faster.
/// `trained`: by layer; parts that were not measured keep the plan's seconds.
std::optional<BetterOrder> better_order(const Plan& plan, const std::vector<LayerSeconds>& trained);

}  // namespace strata
