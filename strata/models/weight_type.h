/// Names the types in which a served model may keep the matrices of its blocks.
#pragma once

#include <cstdint>

namespace strata {

enum class WeightType : std::uint8_t {
  kPrecision,  ///< that of weights and activations alike
  kInt8,       ///< 8 bits and a scale per row (nn/kernels/quantised_rows.h)
  kInt4,       ///< 4 bits, and a scale and a minimum per 32 terms of a row
};
const char* name_of(WeightType type);  ///< "precision", "int8", "int4"

}  // namespace strata
