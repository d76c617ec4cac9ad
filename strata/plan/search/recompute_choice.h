/// Chooses which layers to recompute so that every rank fits its budget at the lowest cost.
///
/// A rank over its budget takes those of its layers that free the most saved bytes per second of
/// forward, earlier layers first among equals: they are recomputed after later ones have been
/// freed. Then every unnecessary member is removed, the slowest first. Removing any member of the
/// result breaks a budget; a cheaper set of other members may exist.
///
/// Beyond 32 chosen layers of a rank, the last search tests runs of equal layers.
///
/// Cost  about log2(n) + k ledgers for n layers on the fullest rank, k of them chosen; beyond 32,
///       log2(k) ledgers for each run of equal layers instead of k.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/layout/layer_set.h"
#include "strata/plan/ledger/ledger.h"

namespace strata {

/// Returns the ledger of a step that recomputes these layers.
using LedgerOf = std::function<Ledger(const LayerSet& recompute)>;

/// On a rank that fits with no choice, returns every layer that frees bytes.
LayerSet choose_recompute(const CostTable& costs, const std::vector<int>& rank_of_layer,
                          std::int64_t device_bytes, const LedgerOf& ledger_of);

/// All layers that may be recomputed.
LayerSet recompute_all(const CostTable& costs);

}  // namespace strata
