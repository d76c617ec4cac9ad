/// Draws the initial values of a weight by counter: the same on any mesh.
///
/// Keys are (seed, name, element); normal numbers by Box-Muller, all in double.
///
/// Threads  elements are independent; the intra-op threads share them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "strata/nn/graph/layer.h"

namespace strata {

/// Fills `weight` (contiguous fp32) with the elements from `begin` on of the slice of
/// tensor-parallel rank `rank` of `ranks`; padding becomes zero. The name of a tied weight is its
/// tie, so that all uses agree.
void initialise(const at::Tensor& weight, const WeightSpec& spec, const std::string& layer_name,
                std::uint64_t seed, int rank = 0, int ranks = 1, std::int64_t begin = 0);

}  // namespace strata
