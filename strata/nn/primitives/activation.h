/// Names the activation functions.
#pragma once

#include <cstdint>

namespace strata {

/// kGelu: tanh form (Hendrycks & Gimpel 2016). kSwiglu (Shazeer 2020): silu(gate) * up of rows
/// [gate | up], half as wide. kRelu: max(x, 0).
enum class Activation : std::uint8_t { kGelu, kSwiglu, kRelu };

}  // namespace strata
