/// States in which numbers ranks with the same weights send each other gradients and, with ZeRO
/// stage 3, weights.
///
/// Integers are made in blocks of one weight's elements, each with an fp32 scale
/// (comm/block_code.h).
///
/// Source  Wang et al. 2023 (ZeRO++, arXiv 2306.10209).
#pragma once

#include <cstdint>

namespace strata {

enum class TrafficFormat : std::uint8_t {
  kFull,  ///< the numbers themselves
  kInt8,
  kInt4,
};
const char* name_of(TrafficFormat format);  ///< "full", "int8", "int4"

/// Bits of an integer; 0: kFull.
int bits_of(TrafficFormat format);

struct Traffic {
  TrafficFormat gradients = TrafficFormat::kFull;
  TrafficFormat weights = TrafficFormat::kFull;
  std::int64_t block = 128;  ///< elements with one scale; divides kFlatBlock

  bool is_full() const {
    return gradients == TrafficFormat::kFull && weights == TrafficFormat::kFull;
  }
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// The bytes of `elements` and their scales; `full_bytes`: those of the numbers themselves. A scale
/// is counted for every `block` elements, although the last block of a weight may be shorter.
double traffic_bytes(TrafficFormat format, std::int64_t block, double elements, double full_bytes);

}  // namespace strata
