/// Chooses for each layer whether its activations are kept, computed again inside the layer or as a
/// whole, or from offloaded inputs, so that the step is the fastest that fits its budgets.
///
/// Keeping costs bytes, a recompute costs seconds, and offloaded inputs cost the
/// link seconds that compute does not hide. Ledger and simulator evaluate each choice. The search
/// starts from the caller's choice, and from all or every second one of the recomputed layers
/// offloaded. It then drops, exchanges and moves members as long as a step gets faster, or equally
/// fast with fewer members. What a layer saves apart from its inputs belongs to its graph and
/// cannot be offloaded: it is kept or recomputed.
///
/// Cost  at most `most_trials` trials, plus those of choose_recompute() for two starting points.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/layout/layer_set.h"
#include "strata/plan/ledger/ledger.h"
#include "strata/plan/search/recompute_choice.h"

namespace strata {

struct ActivationChoice {
  RecomputeChoice recompute = {};
  LayerSet offload = {};  ///< layers, run again as a whole, whose inputs are offloaded
  friend bool operator==(const ActivationChoice&, const ActivationChoice&) = default;
};

struct ActivationTrial {
  bool fits = false;  ///< within all budgets
  double step_seconds = 0;
  Ledger ledger = {};
};

struct ActivationSearch {
  const LevelCosts& costs;
  Recompute base = Recompute::kCheap;  ///< of layers that compute nothing more again
  std::vector<int> rank_of_layer;
  std::int64_t device_bytes = 0;
  bool may_keep = true;  ///< false: what `start` recomputes stays recomputed
  int most_trials = 0;
  std::function<ActivationTrial(const ActivationChoice&)> trial;
};

/// If `start` fits, so does the result.
ActivationChoice choose_activations(const ActivationSearch& search, const ActivationChoice& start);

}  // namespace strata
