/// Reads the rows of weights that a rank has parts of, and rounds them to 8 bits by the scales of
/// the whole rows (nn/kernels/int8_columns.h).
///
/// Cost     reads whole rows, up to 4 MiB of them at a time in memory that is not charged to the
///          rank's account; a rank with a part of each row reads all of it.
/// Errors   what `read` throws.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/checkpoint/named_state.h"

namespace strata {

/// Fills the runs of states whose bytes are in host memory.
using ReadStates = std::function<void(const std::vector<NamedState>&)>;

/// Terms of a row that follow each other in the row and in the rank's part.
struct Int8Piece {
  std::int64_t local = 0;  ///< index of the first one in the rank's part
  std::int64_t count = 0;
  const std::int8_t* q = nullptr;
  float scale = 0;
};

/// Calls `use` for all elements of `part.runs`, a part of a matrix; `part.local` is not used.
void read_int8_rows(const NamedState& part, const ReadStates& read,
                    const std::function<void(const Int8Piece&)>& use);

/// Fills `weights` as `read` does, those that are kept in 8 bits (models/int8_model.h) with their
/// values after rounding.
void read_rounded_to_int8(const std::vector<NamedState>& weights, const ReadStates& read);

}  // namespace strata
