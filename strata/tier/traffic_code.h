/// Makes the code in which ranks send a layer's gradients or weights.
///
/// Matrices and other weights of at least two dimensions become integers; vectors, such as biases
/// and the gains of norms, and running statistics are few and are sent as they are.
#pragma once

#include <cstdint>
#include <optional>

#include "strata/comm/block_code.h"
#include "strata/layout/traffic_format.h"
#include "strata/nn/graph/layout.h"

namespace strata {

/// Empty for kFull.
std::optional<BlockCode> traffic_code(const LayerLayout& layout, TrafficFormat format,
                                      std::int64_t block);

}  // namespace strata
