// A block has sixteen sums, added pairwise at the end, so the order is the same for every vector
// width. The square of a float is exact in fp64, so a fused multiply-add changes nothing either.
#include "strata/optim/gradient_norm.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/block_squares.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kSums = 16;

double Squares(const float* x, std::int64_t n) {
  const hn::CappedTag<double, kSums> d;
  const hn::Rebind<float, decltype(d)> narrow;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  hn::Vec<decltype(d)> vectors[kSums / kLanes];
  for (auto& vector : vectors) vector = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    const float* next = x + i;
    for (auto& vector : vectors) {
      const auto value = hn::PromoteTo(d, hn::LoadU(narrow, next));
      vector = hn::MulAdd(value, value, vector);
      next += kLanes;
    }
  }
  HWY_ALIGN double sums[kSums];
  for (int k = 0; k < kSums / kLanes; ++k) hn::Store(vectors[k], d, sums + k * kLanes);
  for (int j = 0; i + j < n; ++j) {
    const double value = x[i + j];
    sums[j] += value * value;
  }
  for (int width = kSums / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

void BlockSquares(const float* x, double* sums, std::int64_t n) {
  for (std::int64_t begin = 0; begin < n; begin += kFlatBlock) {
    *sums++ = Squares(x + begin, std::min(kFlatBlock, n - begin));
  }
}

}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
HWY_EXPORT(BlockSquares);

void block_squares(const float* x, double* sums, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(BlockSquares)(x, sums, n);
}
}  // namespace strata
#endif
