// A sample's vectors are few and short: they stay in the L1 cache for all pairs.
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

// Returns vector i; the first one may be stored separately.
template <typename T>
HWY_INLINE T* vector_of(T* first, T* rest, std::int64_t i, std::int64_t width) {
  if (!first) return rest + i * width;
  return i == 0 ? first : rest + (i - 1) * width;
}

void PairwiseDots(const FeatureVectors& x, float* products) {
  const FloatTag d;
  for (std::int64_t i = 1; i < x.count; ++i) {
    const float* a = vector_of(x.first, x.rest, i, x.width);
    for (std::int64_t j = 0; j < i; ++j) {
      const float* b = vector_of(x.first, x.rest, j, x.width);
      FloatVector sum = hn::Zero(d);
      for_each_partial(x.width, [&](std::int64_t c, std::int64_t count) {
        sum = hn::MulAdd(load_partial(a + c, count), load_partial(b + c, count), sum);
      });
      *products++ = hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

void PairwiseDotsBackward(const FeatureVectors& x, const float* dproducts, float* dfirst,
                          float* drest) {
  const FloatTag d;
  for (std::int64_t i = 1; i < x.count; ++i) {
    const float* a = vector_of(x.first, x.rest, i, x.width);
    float* da = vector_of(dfirst, drest, i, x.width);
    for (std::int64_t j = 0; j < i; ++j) {
      const float* b = vector_of(x.first, x.rest, j, x.width);
      float* db = vector_of(dfirst, drest, j, x.width);
      const FloatVector gradient = hn::Set(d, *dproducts++);
      for_each_partial(x.width, [&](std::int64_t c, std::int64_t count) {
        const FloatVector at_a = load_partial(da + c, count), at_b = load_partial(db + c, count);
        store_partial(hn::MulAdd(gradient, load_partial(b + c, count), at_a), da + c, count);
        store_partial(hn::MulAdd(gradient, load_partial(a + c, count), at_b), db + c, count);
      });
    }
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(PairwiseDots);
HWY_EXPORT(PairwiseDotsBackward);

void pairwise_dots(const FeatureVectors& x, float* products) {
  HWY_DYNAMIC_DISPATCH(PairwiseDots)(x, products);
}
void pairwise_dots_backward(const FeatureVectors& x, const float* dproducts, float* dfirst,
                            float* drest) {
  HWY_DYNAMIC_DISPATCH(PairwiseDotsBackward)(x, dproducts, dfirst, drest);
}
}  // namespace strata::kernels
#endif
