#include "strata/nn/kernels/quantised_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "strata/nn/kernels/kernels.h"

namespace strata::kernels {
namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

std::int64_t groups_of(std::int64_t in, std::int64_t terms) {
  return in == 0 ? 0 : (in + terms - 1) / terms;
}

// A magnitude's bits order like the magnitude, infinities and then NaN last.
float largest_magnitude(const float* x, std::int64_t n) {
  std::int32_t most = 0;
  for (std::int64_t i = 0; i < n; ++i)
    most = std::max(most, std::bit_cast<std::int32_t>(x[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(most);
}

// To nearest even, for magnitudes below 2^22: the sum has no bits for a fraction.
float round_to_whole(float x) {
  constexpr float kShift = 3 << 22;
  return (x + kShift) - kShift;
}

// q = (x - minimum) / scale.
void round_terms(const float* x, std::int64_t n, float minimum, float scale, float least,
                 float most, std::int8_t* q) {
  if (!(scale > 0)) return void(std::fill_n(q, n, std::int8_t{0}));
  for (std::int64_t i = 0; i < n; ++i) {
    // Scales that lost digits make quotients beyond the range.
    const float steps = std::min(std::max((x[i] - minimum) / scale, least), most);
    q[i] = static_cast<std::int8_t>(round_to_whole(steps));
  }
}

void round_to_fp16(std::vector<float>& x) {
  std::vector<Fp16> half(x.size());
  narrow(Element::kFp16, x.data(), half.data(), std::ssize(x));
  widen(Element::kFp16, half.data(), x.data(), std::ssize(x));
}

}  // namespace

QuantisedRow::QuantisedRow(QuantisedType type, std::int64_t in)
    : type_(type),
      group_(kernels::group_terms(type, in)),
      q_(static_cast<std::size_t>(in)),
      scales_(static_cast<std::size_t>(groups_of(in, group_))),
      minima_(scales_.size(), 0) {}

void QuantisedRow::round(const float* row) {
  const auto in = std::ssize(q_), groups = std::ssize(scales_);
  const bool int8 = type_ == QuantisedType::kInt8;
  const auto terms = [&](std::int64_t group) { return std::min(group_, in - group * group_); };
  for (std::int64_t group = 0; group < groups; ++group) {
    const float* x = row + group * group_;
    const float largest = largest_magnitude(x, terms(group));
    if (int8) {
      scales_[group] = largest / static_cast<float>(kMostInt8);
    } else {
      const auto [least, most] = std::minmax_element(x, x + terms(group));
      minima_[group] = *least;
      scales_[group] = (*most - *least) / static_cast<float>(kMostInt4);
    }
    if (!std::isfinite(largest)) scales_[group] = kNoNumber;
  }
  if (!int8) {
    round_to_fp16(minima_);
    round_to_fp16(scales_);
  }
  for (std::int64_t group = 0; group < groups; ++group) {
    if (!std::isfinite(scales_[group]) || !std::isfinite(minima_[group])) {
      scales_[group] = kNoNumber;
      minima_[group] = 0;
    }
    const float most = int8 ? kMostInt8 : kMostInt4, least = int8 ? -most : 0;
    round_terms(row + group * group_, terms(group), minima_[group], scales_[group], least, most,
                q_.data() + group * group_);
  }
}

}  // namespace strata::kernels
