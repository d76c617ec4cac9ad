/// Loads and stores the first n lanes of a vector, for the ends of rows. Included once a target.
#include <cstdint>

#if defined(STRATA_PARTIAL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_PARTIAL_INL_H
#undef STRATA_PARTIAL_INL_H
#else
#define STRATA_PARTIAL_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

using FloatTag = hwy::HWY_NAMESPACE::ScalableTag<float>;
using FloatVector = hwy::HWY_NAMESPACE::Vec<FloatTag>;

/// The other lanes are zero.
HWY_INLINE FloatVector load_partial(const float* from, std::int64_t n) {
  const FloatTag d;
  if (n == static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(d)))
    return hwy::HWY_NAMESPACE::LoadU(d, from);
  HWY_ALIGN float padded[HWY_MAX_BYTES / sizeof(float)] = {};
  for (std::int64_t i = 0; i < n; ++i) padded[i] = from[i];
  return hwy::HWY_NAMESPACE::Load(d, padded);
}

HWY_INLINE void store_partial(FloatVector v, float* to, std::int64_t n) {
  const FloatTag d;
  if (n == static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(d)))
    return hwy::HWY_NAMESPACE::StoreU(v, d, to);
  HWY_ALIGN float padded[HWY_MAX_BYTES / sizeof(float)];
  hwy::HWY_NAMESPACE::Store(v, d, padded);
  for (std::int64_t i = 0; i < n; ++i) to[i] = padded[i];
}

/// Calls body(first, n) for the vectors of a row: n lanes each, fewer in the last.
template <typename Body>
HWY_INLINE void for_each_partial(std::int64_t width, Body body) {
  const auto lanes = static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(FloatTag()));
  for (std::int64_t c = 0; c < width; c += lanes) body(c, width - c < lanes ? width - c : lanes);
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
