/// Computes the angles of rotary positions. The host computes them, so that all devices agree.
///
/// Threads  any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace strata {

/// Rotary positions: the angle by which each pair of elements of a head is turned at a position.
/// Source  Su et al. 2021, in the layout of Hugging Face's weights: element i of a head is turned
///         against element i + width / 2; long wavelengths are stretched as in Llama 3 ("llama3" in
///         transformers).
struct RopeOptions {
  double theta = 10000;
  double factor = 1;  ///< slow pairs are slowed down by it; 1: off, the rest is unused
  double low_frequency_factor = 1;   ///< fewer turns in the original context: fully slowed
  double high_frequency_factor = 4;  ///< more turns: unchanged; in between: blended
  std::int64_t original_context = 8192;
  friend bool operator==(const RopeOptions&, const RopeOptions&) = default;
};

/// Radians per position for each of the width / 2 pairs.
std::vector<float> rope_frequencies(const RopeOptions& options, std::int64_t width);

/// The table of the positions [first, first + length); on a GPU a view of a table that the process
/// keeps.
/// Shapes  [length, width] fp32: the cosines of a position, then its sines.
at::Tensor rope_table(const RopeOptions& options, std::int64_t width, std::int64_t length,
                      std::int64_t first, c10::Device device);

}  // namespace strata
