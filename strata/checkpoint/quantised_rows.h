/// Reads the rows of weights that a rank has parts of, and rounds them to 8 or 4 bits by the scales
/// of the whole rows (nn/kernels/quantised_rows.h).
///
/// Cost     reads whole rows, up to 4 MiB of them at a time in memory that is not charged to the
///          rank's account; a rank with a part of each row reads all of it.
/// Errors   what `read` throws.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/nn/kernels/quantised_rows.h"

namespace strata {

/// Fills the runs of states whose bytes are in host memory.
using ReadStates = std::function<void(const std::vector<NamedState>&)>;

/// Terms [begin, begin + count) of a rounded row, which follow each other in the rank's part, too.
struct QuantisedPiece {
  const kernels::QuantisedRow& row;
  std::int64_t begin = 0, count = 0;
  std::int64_t local = 0;  ///< index of the first one in the rank's part
};

/// Calls `use` for all elements of `part.runs`, a part of a matrix; `part.local` is not used.
void read_quantised_rows(kernels::QuantisedType type, const NamedState& part,
                         const ReadStates& read,
                         const std::function<void(const QuantisedPiece&)>& use);

/// Fills `weights` as `read` does, those that are kept in fewer bits (models/quantised_model.h)
/// with their values after rounding.
void read_rounded(kernels::QuantisedType type, const std::vector<NamedState>& weights,
                  const ReadStates& read);

}  // namespace strata
