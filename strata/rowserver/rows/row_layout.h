/// Lays a row out in memory: a header, its values in the feature's precision, its optimizer's states.
///
/// Shapes  header: id (8 bytes), version (4), uses (4); values: fp32 [width], fp16 [width], or int8
///         [width] behind their fp32 scale, padded to 4 bytes; states: fp32, by kind:
///         momentum, Adagrad [width]; row-wise Adagrad [1]; Adam, AdamW: means, mean squares;
///         FTRL: linear terms, sums of squares.
/// Errors  UserError: a feature that has no layout.
#pragma once

#include <cstdint>
#include <string>

#include "strata/rowserver/feature.h"

namespace strata {

inline constexpr int kRowHeaderBytes = 16;
/// What a row costs beside values and states, as budgets count it: its header, and at most 10 bytes of
/// index (see row_index.h).
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

// The version of a row says when it was last updated: even, and 0 nowhere.
inline constexpr std::int64_t kLastStep = (std::int64_t{1} << 31) - 3;
inline std::uint32_t version_of(std::int64_t step) {
  return static_cast<std::uint32_t>(step + 1) * 2;
}
inline std::int64_t step_of(std::uint32_t version) { return std::int64_t{version / 2} - 1; }

// The uses of a row: how many updates it has seen, and how recent they are, for evictions.
inline constexpr std::uint32_t kMostHits = (1u << 24) - 1;
inline std::uint32_t uses_of(std::uint32_t hits, std::uint32_t recent) {
  return (hits < kMostHits ? hits : kMostHits) << 8 | recent;
}
inline std::uint32_t hits_of(std::uint32_t uses) { return uses >> 8; }
inline std::uint32_t recent_of(std::uint32_t uses) { return uses & 0xFF; }

/// "fp32 [16], adagrad": two features whose texts are equal have rows of the same bytes.
std::string layout_text(const FeatureSpec& spec);

/// Refuses (UserError) a feature that no table can hold: its width, its admission, its eviction.
void check_feature(const FeatureSpec& spec);

}  // namespace strata
