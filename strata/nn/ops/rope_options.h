/// Sizes rotary positions: how fast each pair of elements of a head turns with the position.
///
/// Source  Su et al. 2021; the stretching of long wavelengths is Llama 3's ("llama3" in
///         transformers).
#pragma once

#include <cstdint>

namespace strata {

struct RopeOptions {
  double theta = 10000;
  double factor = 1;  ///< by which the slow pairs are slowed down; 1: none, the rest is not used
  double low_frequency_factor = 1;   ///< slower than this many turns in the original context: all
  double high_frequency_factor = 4;  ///< faster than this many turns: none; between: blended
  std::int64_t original_context = 8192;
  friend bool operator==(const RopeOptions&, const RopeOptions&) = default;
};

}  // namespace strata
