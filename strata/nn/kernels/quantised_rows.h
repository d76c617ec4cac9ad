/// Rounds the rows of a weight to 8 or 4 bits.
///
/// A row [in] of the weight becomes integers q, and each of its groups of terms gets a scale and a
/// minimum; the values are minimum + scale * q, rounded to fp32 once.
///
/// kInt8    one group, the row. scale = max|w| / 127, minimum = 0, q in [-127, 127].
/// kInt4    groups of kInt4Terms terms; the last one may be shorter. minimum = min w and scale =
///          (max w - min w) / 15, both rounded to fp16; q in [0, 15]. Q4_1 of GGUF files has values
///          of this form, so weights from such a file keep theirs.
///
/// q is rounded to nearest even. A group whose numbers are all equal has scale 0. A group with a
/// number that is not finite, or a minimum or scale that fp16 cannot hold, has scale NaN: all its
/// values are NaN.
///
/// No torch is included here.
#pragma once

#include <cstdint>
#include <vector>

namespace strata::kernels {

enum class QuantisedType : std::uint8_t { kInt8, kInt4 };

inline constexpr std::int64_t kMostInt8 = 127;
inline constexpr std::int64_t kMostInt4 = 15;
inline constexpr std::int64_t kInt4Terms = 32;  ///< of a group

/// Terms of a group of a row [in].
constexpr std::int64_t group_terms(QuantisedType type, std::int64_t in) {
  return type == QuantisedType::kInt4 ? kInt4Terms : in;
}

class QuantisedRow {
 public:
  QuantisedRow(QuantisedType type, std::int64_t in);

  QuantisedType type() const { return type_; }
  /// Terms that share a scale and a minimum.
  std::int64_t group_terms() const { return group_; }

  /// Rounds a row [in] of fp32.
  void round(const float* row);

  std::int8_t q(std::int64_t term) const { return q_[term]; }
  float scale(std::int64_t group) const { return scales_[group]; }
  float minimum(std::int64_t group) const { return minima_[group]; }
  float value(std::int64_t term) const {
    return minima_[term / group_] + scales_[term / group_] * static_cast<float>(q_[term]);
  }

 private:
  QuantisedType type_;
  std::int64_t group_;
  std::vector<std::int8_t> q_;
  std::vector<float> scales_, minima_;  // [groups]
};

}  // namespace strata::kernels
