/// Puts the whole of each state together from the parts that ranks answer for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "strata/train/named_state.h"

namespace strata {

/// Copies the elements of `states` into the whole tensors of the same names, which it makes (zero)
/// where they aren't there yet.
void assemble(const std::vector<NamedState>& states, std::map<std::string, at::Tensor>& whole);

}  // namespace strata
