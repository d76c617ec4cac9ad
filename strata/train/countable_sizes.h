/// Refuses models of which a tensor or all bytes could not be counted, before anything multiplies their sizes.
///
/// Errors  UserError.
#pragma once

#include "strata/schedule/costs.h"
#include "strata/train/recipe.h"

namespace strata {

/// The largest tensors of a text model.
void check_elements(const Recipe& recipe);

/// Of the whole model and its activations.
void check_bytes(const CostTable& costs);

}  // namespace strata
