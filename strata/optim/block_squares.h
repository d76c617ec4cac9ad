/// Sums the squares of one block of a gradient, to the same bits on every instruction set.
///
/// No torch in here: the file compiles fast, once per instruction set (Highway).
#pragma once

#include <cstdint>

#include "strata/base/flat_range.h"

namespace strata {

/// Writes sums[b], in fp64, of the squares of block b of x (kFlatBlock), the last block cut at n.
void block_squares(const float* x, double* sums, std::int64_t n);

}  // namespace strata
