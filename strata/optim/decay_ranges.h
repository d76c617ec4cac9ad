/// Splits a layer's flat buffers at the end of the decayed weights, for kernels that take one
/// decay.
#pragma once

#include <functional>

#include "strata/optim/optimizer.h"

namespace strata {

/// Calls `update(part, decayed)` for the non-empty parts of [0, decay_numel) and [decay_numel,
/// numel).
///
/// Errors  InternalError: not `num_slots` slots, buffers of different lengths, or a cut that is no
///         multiple of 16 elements (ATen's fused kernels would give other bits).
void for_each_decay_range(const UpdateRange& range, std::size_t num_slots,
                          const std::function<void(const UpdateRange& part, bool decayed)>& update);

}  // namespace strata
