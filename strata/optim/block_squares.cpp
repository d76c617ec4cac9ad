#include "strata/optim/block_squares.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/block_squares.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {

// Sixteen sums, added pairwise at the end: an order that no vector width changes. The square of a
// float is exact in fp64, so a fused multiply-add changes nothing either.
inline constexpr int kSums = 16;

double Squares(const float* x, std::int64_t n) {
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int j = 0; j < kSums; ++j) {
      const double value = x[i + j];
      sums[j] += value * value;
    }
  }
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
  for (std::int64_t begin = 0; begin < n; begin += kNormBlock) {
    *sums++ = Squares(x + begin, std::min(kNormBlock, n - begin));
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
