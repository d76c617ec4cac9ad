/// Brings what every rank did in a step to rank 0, across processes, as a tensor.
///
/// Shapes  [events, 6] fp64: kind (its Op), stage, micro-batch, first layer, begin and end seconds.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "strata/base/trace.h"

namespace strata {

at::Tensor encode_events(const std::vector<TraceEvent>& events);
std::vector<TraceEvent> decode_events(const at::Tensor& encoded);

}  // namespace strata
