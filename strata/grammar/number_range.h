/// Builds the decimal texts of numbers within bounds.
#pragma once

#include <cstdint>
#include <optional>

#include "strata/grammar/grammar.h"

namespace strata {

/// Whole numbers without a fraction or an exponent, and without a plus sign or leading zeros. A
/// missing bound is no bound.
Grammar::Expression whole_numbers(Grammar& grammar, std::optional<std::int64_t> least,
                                  std::optional<std::int64_t> most);

}  // namespace strata
