/// Refuses sizes whose products would not fit in 64 bits: nothing is allocated for them.
///
/// Sizes are multiplied as floating point, so that too large a product does not overflow before the
/// comparison.
///
/// Errors  UserError: the product is too large.
#pragma once

#include <string>

#include "strata/layout/costs.h"

namespace strata {

/// Refuses a tensor of more than 2^50 elements. `what` and `fix` are those of the error.
void check_elements(double elements, const std::string& where, const std::string& what,
                    const std::string& fix);

/// Refuses a model and its activations of more than 2^60 bytes.
void check_bytes(const CostTable& costs);

}  // namespace strata
