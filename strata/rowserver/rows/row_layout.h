/// Defines the layout of a row in memory: a header, its values in the feature's precision, and its
/// optimizer's states.
///
/// Shapes   header: id (8 bytes), version (4), uses (4). Values: fp32 [width], fp16 [width], or an
///          fp32 scale and int8 [width], padded to 4 bytes. States are fp32, by kind: momentum,
///          Adagrad [width]; row-wise Adagrad [1]; Adam, AdamW: means, mean squares; FTRL: linear
///          terms, sums of squares.
/// Errors   UserError: a feature without a layout.
#pragma once

#include <cstdint>
#include <string>

#include "strata/rowserver/feature.h"

namespace strata {

inline constexpr int kRowHeaderBytes = 16;
/// Bytes per row that budgets count in addition to values and states: the header, and at most 10
/// bytes of index (row_index.h).
inline constexpr int kRowOverheadBytes = 26;
inline constexpr int kMaxRowWidth = 4096;

struct RowLayout {
  explicit RowLayout(const FeatureSpec& spec);

  int payload_bytes() const { return value_bytes + 4 * num_states; }
  int row_bytes() const { return kRowHeaderBytes + payload_bytes(); }
  int cost_bytes() const { return kRowOverheadBytes + payload_bytes(); }

  int width = 0;
  RowPrecision precision = RowPrecision::kFp32;
  int value_bytes = 0;
  int num_states = 0;  ///< fp32 numbers
};

// The version of a row is the time of its last update: even, and never 0.
inline constexpr std::int64_t kLastStep = (std::int64_t{1} << 31) - 3;
inline std::uint32_t version_of(std::int64_t step) {
  return static_cast<std::uint32_t>(step + 1) * 2;
}
inline std::int64_t step_of(std::uint32_t version) { return std::int64_t{version / 2} - 1; }

// The uses of a row: the number and the recency of its updates, which evictions compare.
inline constexpr std::uint32_t kMostHits = (1u << 24) - 1;
inline std::uint32_t uses_of(std::uint32_t hits, std::uint32_t recent) {
  return (hits < kMostHits ? hits : kMostHits) << 8 | recent;
}
inline std::uint32_t hits_of(std::uint32_t uses) { return uses >> 8; }
inline std::uint32_t recent_of(std::uint32_t uses) { return uses & 0xFF; }

/// Returns "fp32 [16], adagrad". Features with equal texts have rows of equal bytes.
std::string layout_text(const FeatureSpec& spec);

/// Throws UserError for a feature that no table can hold: its width, admission or eviction.
void check_feature(const FeatureSpec& spec);

}  // namespace strata
