/// Chooses what each layer computes again in backward so that every rank fits its budget at the
/// lowest cost.
///
/// A rank over its budget takes those steps of its layers (recompute_steps.h) that free the most
/// saved bytes per second, earlier layers first among equals: they are recomputed after later ones
/// have been freed. Then every unnecessary step is taken back, deep ones first and the slowest
/// first. Taking back any step of the result breaks a budget; a cheaper choice of other steps may
/// exist.
///
/// Beyond 32 chosen layers of a rank, the last search tests runs of equal layers.
///
/// Cost  about log2(n) + k ledgers for n steps on the fullest rank, k of them chosen; beyond 32,
///       log2(k) ledgers for each run of equal layers instead of k.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/layout/layer_set.h"
#include "strata/layout/recompute.h"
#include "strata/plan/ledger/ledger.h"
#include "strata/schedule/step_plan.h"

namespace strata {

/// What each layer computes again in backward.
struct RecomputeChoice {
  LayerSet whole = {};          ///< runs again as a whole
  RecomputeLevels levels = {};  ///< inside layers
  bool empty() const { return whole.empty() && levels.other_layers().empty(); }
  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

RecomputeChoice recompute_choice_of(const StepDecisions& decisions);

/// Returns the ledger of a step with this choice.
using LedgerOf = std::function<Ledger(const RecomputeChoice& choice)>;

/// `base`: the level of layers that compute nothing more again. A whole layer that runs again needs
/// more bytes at once than one with a deep level, so steps to whole layers are left out if the
/// search fits only without them. On a rank that no choice makes fit, all layers take all steps.
RecomputeChoice choose_recompute(const LevelCosts& costs, Recompute base,
                                 const std::vector<int>& rank_of_layer, std::int64_t device_bytes,
                                 const LedgerOf& ledger_of);

/// All layers that may run again as a whole.
LayerSet recompute_all(const CostTable& costs);

/// All layers at the deepest level that has costs.
RecomputeChoice deepest_levels(const LevelCosts& costs, Recompute base);

}  // namespace strata
