/// Returns the machines of the claims: the files of machines/, which the build embeds, so that the
/// program needs no folder.
///
/// Errors  InternalError if no embedded machine has the name.
#pragma once

#include <string>
#include <string_view>

#include "strata/plan/machine_profile.h"

namespace strata {

/// `name`: that of a file of machines/ without ".yaml", such as "a100-selene".
const MachineProfile& claim_machine(std::string_view name);

extern const std::string_view kSeleneMachine, kDgxA100Machine, kDgx2ClusterMachine, kDgx2Machine,
    kStrongholdMachine;

}  // namespace strata
