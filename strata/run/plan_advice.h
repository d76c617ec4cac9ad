/// Answers a plan reader's next questions: the origin of its seconds, the fast precisions here, the
/// largest possible depth.
#pragma once

#include <string>
#include <vector>

#include "strata/plan/ledger/zero_bytes.h"
#include "strata/plan/machine_profile.h"
#include "strata/plan/search/tier_depth.h"
#include "strata/run/recipe_file.h"

namespace strata {

/// States which rates an estimate uses: those of ResolvedRun::machine, or assumed ones; one line of
/// a plan.
std::string estimate_text(const Recipe& recipe, const MachineProfile& machine);

/// States which precision this processor is fast in, and whether the recipe's is slow here; empty
/// if it was not measured, or for another device. `measure`: measures for 16 bit if `strata doctor`
/// has saved no rates; otherwise nothing is allocated.
std::string precision_advice(const Recipe& recipe, bool measure);

/// The largest depth of a model of this shape, by what leaves the device; empty without a budget.
/// `convention`: another system's bytes per parameter (plan/ledger/zero_bytes.h); null: ours.
/// `devices`: number of devices that ranks share; each must hold all of its ranks.
std::vector<TierDepth> largest_depths(const Recipe& recipe, const MachineProfile& machine,
                                      const ParameterBytes* convention = nullptr,
                                      const SharedDevices& devices = {});

}  // namespace strata
