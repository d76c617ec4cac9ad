/// Chooses what becomes of each layer's activations: kept, made again in backward, or made again from inputs
/// that waited on the host; the fastest step that fits its budgets.
///
/// Keeping costs bytes, running again seconds of a forward, and inputs on the host seconds of the link that
/// compute does not hide: what a choice comes to is for the ledger and the simulator to say. The search starts
/// where it is told and where all or every other one of the layers that run again offload; then it
/// drops, exchanges and moves members as long as a step gets faster, or as fast with fewer of them. What
/// a layer saved beside its inputs is in its graph, which nothing takes apart: it is kept or made again.
///
/// Cost  at most `most_trials` trials, beside those of choose_recompute() for two beginnings.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/plan/ledger.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/layer_set.h"

namespace strata {

struct ActivationChoice {
  LayerSet recompute = {};
  LayerSet offload = {};  ///< of those
  friend bool operator==(const ActivationChoice&, const ActivationChoice&) = default;
};

struct ActivationTrial {
  bool fits = false;  ///< all budgets
  double step_seconds = 0;
  Ledger ledger = {};
};

struct ActivationSearch {
  const CostTable& costs;
  std::vector<int> rank_of_layer;
  std::int64_t device_bytes = 0;
  bool may_keep = true;  ///< false: layers that run again in the beginning do so in the end
  int most_trials = 0;
  std::function<ActivationTrial(const ActivationChoice&)> trial;
};

/// `start` fits, and so does the result.
ActivationChoice choose_activations(const ActivationSearch& search, const ActivationChoice& start);

}  // namespace strata
