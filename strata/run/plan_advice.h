/// Says what a plan's reader asks next: where its seconds come from, which precision is fast here, how deep the
/// model could be.
#pragma once

#include <string>
#include <vector>

#include "strata/plan/ledger/zero_bytes.h"
#include "strata/plan/machine_profile.h"
#include "strata/plan/search/tier_depth.h"
#include "strata/run/recipe_file.h"

namespace strata {

/// Which rates an estimate here takes its seconds from: those of `machine`, or assumed ones; a line of a plan.
std::string estimate_text(const Recipe& recipe, const MachineProfile& machine);

/// What this processor is fast in, and whether the recipe's precision is slow here; empty if nobody
/// has measured it, or another device is asked for. `measure`: for 16 bit, measures where `strata doctor` has
/// saved nothing; else allocates nothing.
std::string precision_advice(const Recipe& recipe, bool measure);

/// How deep a model of this shape could be, by what leaves the device; empty without a budget.
/// `convention`: of bytes a parameter (plan/ledger/zero_bytes.h), another system's; null: ours. `devices`: those that ranks
/// share, of which each has to have room for all of its ranks.
std::vector<TierDepth> largest_depths(const Recipe& recipe, const MachineProfile& machine,
                                      const ParameterBytes* convention = nullptr,
                                      const SharedDevices& devices = {});

}  // namespace strata
