/// Chooses which layers to compute twice so that every rank fits its budget at the least cost.
///
/// A rank over its budget takes, of its layers, those that free most saved bytes a second of
/// forward, earlier layers first among equals: they are computed again when later ones have gone.
/// Then every member is dropped again that isn't needed, the slowest first. No member of the result
/// can go without a rank breaking its budget; a cheaper set of other members may exist.
///
/// Of more than 32 chosen layers of a rank, equal ones stand for one another in the last search.
///
/// Cost  about log2(n) + k ledgers for n layers on the fullest rank, k of them chosen; beyond 32,
///       log2(k) ledgers for each run of equal layers instead of k.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/plan/ledger.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/layer_set.h"

namespace strata {

/// Makes the ledger of a step that computes these layers twice.
using LedgerOf = std::function<Ledger(const LayerSet& recompute)>;

/// Every layer that has something to free, on a rank that doesn't fit even so.
LayerSet choose_recompute(const CostTable& costs, const std::vector<int>& rank_of_layer,
                          std::int64_t device_bytes, const LedgerOf& ledger_of);

/// All layers that may run again.
LayerSet recompute_all(const CostTable& costs);

}  // namespace strata
