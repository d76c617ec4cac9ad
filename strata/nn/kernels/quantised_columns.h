/// Multiplies few rows by a weight in 8 or 4 bits (quantised_tiles.h).
///
/// Products read tiles in order, and have the bits of multiply_few() by the values.
///
/// Threads  any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "strata/nn/kernels/decoding.h"
#include "strata/nn/kernels/quantised_tiles.h"

namespace strata::kernels {

/// Columns of a product: the first tile of them, aligned to 4 bytes.
struct QuantisedColumns {
  QuantisedType type;
  const std::byte* tiles;
  std::int64_t out;
  const float* bias;  ///< [out]; null: none
};

/// weight [columns.out, in] = the values of the columns.
void dequantise(const QuantisedColumns& columns, std::int64_t in, float* weight);

/// y[r][o] = bias[o] + x[r] . values of column o, for at most kMostFewRows rows.
void multiply_quantised(const FewRows& x, const QuantisedColumns& columns, float* y,
                        std::int64_t y_stride);

}  // namespace strata::kernels
