// A sample's vectors are few and short: they stay in the L1 cache for all pairs. Every product and
// every gradient is one sum in ascending order, so SIMD registers of any length give the same bits
// on targets with fused multiply-add.
#include <algorithm>
#include <cstdint>

#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/interaction.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(HWY_MAX_BYTES / sizeof(float) <= kMostLanes);

// Returns vector i; the first one may be stored separately.
template <typename T>
HWY_INLINE T* vector_of(T* first, T* rest, std::int64_t i, std::int64_t width) {
  if (!first) return rest + i * width;
  return i == 0 ? first : rest + (i - 1) * width;
}

// Index of the pair i and j < i among the products.
HWY_INLINE std::int64_t pair(std::int64_t i, std::int64_t j) { return i * (i - 1) / 2 + j; }

// Stores the first n lanes, or all if there are fewer.
HWY_INLINE void store_first(FloatVector v, float* to, std::int64_t n) {
  const FloatTag d;
#if !HWY_ARCH_X86 || HWY_TARGET > HWY_AVX2  // no fast masked store is known
  store_partial(v, to, std::min(n, static_cast<std::int64_t>(hn::Lanes(d))));
#else
  hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(n)), d, to);
#endif
}

// So many rows share each loaded vector.
constexpr std::int64_t kRows = 4;

// columns[c * stride + j] = x_j[c]
void transpose(const FeatureVectors& x, std::int64_t stride, float* columns) {
  for (std::int64_t j = 0; j < x.count; ++j) {
    const float* from = vector_of(x.first, x.rest, j, x.width);
    for (std::int64_t c = 0; c < x.width; ++c) columns[c * stride + j] = from[c];
  }
}

void PairwiseDots(const FeatureVectors& x, float* scratch, float* products) {
  const FloatTag d;
  const std::int64_t stride = padded_count(x.count);
  transpose(x, stride, scratch);
  for (std::int64_t first = 1; first < x.count; first += kRows) {
    const float* rows[kRows];
    for (std::int64_t r = 0; r < kRows; ++r)
      rows[r] = vector_of(x.first, x.rest, std::min(first + r, x.count - 1), x.width);
    const std::int64_t last = std::min(first + kRows, x.count) - 1;
    for_each_partial(last, [&](std::int64_t j, std::int64_t) {
      FloatVector sums[kRows] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (std::int64_t c = 0; c < x.width; ++c) {
        const FloatVector column = hn::LoadU(d, scratch + c * stride + j);
        for (std::int64_t r = 0; r < kRows; ++r)
          sums[r] = hn::MulAdd(hn::Set(d, rows[r][c]), column, sums[r]);
      }
      for (std::int64_t i = first; i <= last; ++i)
        if (j < i) store_first(sums[i - first], products + pair(i, j), i - j);
    });
  }
}

void PairwiseDotsBackward(const FeatureVectors& x, const float* dproducts, float* scratch,
                          float* dfirst, float* drest) {
  const FloatTag d;
  const std::int64_t stride = padded_count(x.count);
  for (std::int64_t i = 0; i < x.count; ++i) {
    for (std::int64_t j = 0; j < i; ++j)
      scratch[i * stride + j] = scratch[j * stride + i] = *dproducts++;
  }
  for (std::int64_t first = 0; first < x.count; first += kRows) {
    const std::int64_t rows = std::min(kRows, x.count - first);
    const float* gradients[kRows];
    for (std::int64_t r = 0; r < kRows; ++r)
      gradients[r] = scratch + (first + std::min(r, rows - 1)) * stride;
    for_each_partial(x.width, [&](std::int64_t c, std::int64_t count) {
      FloatVector sums[kRows] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      if (dfirst && first == 0) sums[0] = load_partial(dfirst + c, count);
      const auto add = [&](std::int64_t j, auto is_partner) {
        const FloatVector vector = load_partial(vector_of(x.first, x.rest, j, x.width) + c, count);
        for (std::int64_t r = 0; r < kRows; ++r)
          if (is_partner(r)) sums[r] = hn::MulAdd(hn::Set(d, gradients[r][j]), vector, sums[r]);
      };
      const auto all = [](std::int64_t) { return true; };
      for (std::int64_t j = 0; j < first; ++j) add(j, all);
      for (std::int64_t j = first; j < first + rows; ++j)  // no vector is its own partner
        add(j, [&](std::int64_t r) { return first + r != j; });
      for (std::int64_t j = first + rows; j < x.count; ++j) add(j, all);
      for (std::int64_t r = 0; r < rows; ++r)
        store_partial(sums[r], vector_of(dfirst, drest, first + r, x.width) + c, count);
    });
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(PairwiseDots);
HWY_EXPORT(PairwiseDotsBackward);

std::size_t pairwise_scratch(const FeatureVectors& x) {
  return static_cast<std::size_t>(padded_count(x.count) * std::max(x.count, x.width));
}
void pairwise_dots(const FeatureVectors& x, float* scratch, float* products) {
  HWY_DYNAMIC_DISPATCH(PairwiseDots)(x, scratch, products);
}
void pairwise_dots_backward(const FeatureVectors& x, const float* dproducts, float* scratch,
                            float* dfirst, float* drest) {
  HWY_DYNAMIC_DISPATCH(PairwiseDotsBackward)(x, dproducts, scratch, dfirst, drest);
}
}  // namespace strata::kernels
#endif
