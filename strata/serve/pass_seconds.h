/// Measures passes of a served model without its weights.
///
/// All blocks of a decoder are equal. So a model with one block and one with three, filled with
/// random numbers, give the seconds of a block and of what surrounds the blocks.
///
/// Units   seconds; the lower quartile of several passes.
/// Cost    the bytes of three blocks, embedding and head; about a second for each shape.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/serve/served_model.h"

namespace strata {

/// A pass of `sequences` texts, each of which has `position` tokens in the cache and gets `tokens`.
struct PassShape {
  std::int64_t sequences = 1;
  std::int64_t tokens = 1;
  std::int64_t position = 0;
};

struct PassSeconds {
  double block = 0;
  double ends = 0;  ///< embedding and head
};

/// On as many tensor-parallel ranks as `served` has, and their threads.
std::vector<PassSeconds> measure_passes(const ServedModel& served,
                                        const std::vector<PassShape>& shapes);

}  // namespace strata
