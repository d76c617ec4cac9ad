/// Decides whether this processor's libraries add up as strata/nn/kernels/decoding.h does, by
/// comparing bits once a process.
///
/// Threads  any.
/// Cost     the first call: milliseconds.
#pragma once

#include <cstdint>

#include "strata/nn/kernels/decoding.h"

namespace strata {

/// Whether kernels::multiply_few has the bits of the chosen library's products of more rows.
bool few_rows_hold();

/// Whether, in addition, 64 or more rows of a product have the same bits, whichever other rows are
/// multiplied with them.
/// Cost     the first call: about 20 milliseconds.
bool any_rows_hold();

/// Whether a product of attention within samples of so many tokens has fewer than
/// kernels::kLeastFewColumns columns: the head is narrow, or the last block of keys is short. Then
/// the order of its sums depends on the number of rows.
bool has_few_columns(std::int64_t head_width, std::int64_t sample);

/// The lanes of the vectors that ATen uses on this processor.
kernels::ExponentLanes exponent_lanes();

/// Whether kernels::attend_few has the bits of attention within whole samples of so many tokens.
bool few_queries_hold(std::int64_t head_width, std::int64_t sample);

}  // namespace strata
