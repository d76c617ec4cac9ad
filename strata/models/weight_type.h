/// Names the types in which a served model may keep the matrices of its blocks.
#pragma once

#include <cstdint>

namespace strata {

enum class WeightType : std::uint8_t {
  kPrecision,  ///< that of weights and activations alike
  kInt8,       ///< 8 bits and a scale per row (nn/kernels/int8_columns.h)
};
const char* name_of(WeightType type);  ///< "precision", "int8"

}  // namespace strata
