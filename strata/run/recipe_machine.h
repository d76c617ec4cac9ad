/// Says what a recipe's machine is and can do: this one, as `strata doctor` has measured it, or another one's
/// profile.
///
/// Units  bytes, and FLOP/s.
#pragma once

#include <c10/core/ScalarType.h>

#include "strata/plan/machine_profile.h"
#include "strata/task/recipe.h"

namespace strata {

/// What `strata doctor` has measured here of the recipe's device and of what is beside it; of what it has
/// not, nothing is known.
MachineProfile this_machine(const Recipe& recipe);

/// The recipe on that machine: what it has is the budget where the recipe gives none; of host memory, what the system
/// and the process leave of it. UserError: they leave nothing.
Recipe on_machine(Recipe recipe, const MachineProfile& machine);

/// Whether that budget of host memory is the machine's.
bool reserves_host(const Recipe& recipe, const MachineProfile& machine);

/// A machine of the recipe's kind of device: what is known of another kind is left out.
MachineProfile with_device_of(const Recipe& recipe, MachineProfile machine);

/// Of products in a precision; assumed where nobody has measured or published it.
double flops_of(const MachineProfile& machine, at::ScalarType precision);

/// What an optimizer or a layer reads and writes a second, by the same rule.
double memory_rate_of(const MachineProfile& machine);

}  // namespace strata
