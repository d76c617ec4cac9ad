/// Computes rotary positions: how far each pair of elements of a head is turned at a position.
///
/// Source  Su et al. 2021, in the layout of Hugging Face's weights: element i of a head is turned
///         against element i + width / 2; the stretching of long wavelengths is Llama 3's ("llama3"
///         in transformers).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/device/device.h"

namespace strata {

struct RopeOptions {
  double theta = 10000;
  double factor = 1;  ///< by which the slow pairs are slowed down; 1: none, the rest is not used
  double low_frequency_factor = 1;   ///< slower than this many turns in the original context: all
  double high_frequency_factor = 4;  ///< faster than this many turns: none; between: blended
  std::int64_t original_context = 8192;
  friend bool operator==(const RopeOptions&, const RopeOptions&) = default;
};

/// Radians a position for each of the width / 2 pairs.
std::vector<float> rope_frequencies(const RopeOptions& options, std::int64_t width);

/// Of the positions [first, first + length), on `device`.
/// Shapes  [length, width] fp32: the cosines of a position, then its sines.
at::Tensor rope_table(const RopeOptions& options, std::int64_t width, std::int64_t length,
                      std::int64_t first, c10::Device device);

}  // namespace strata
