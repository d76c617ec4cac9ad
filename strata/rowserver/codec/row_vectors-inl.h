/// Reads and writes rows of any width as vectors; the last, partial vector is padded. Included once
/// per target.
#include <cstring>

#if defined(STRATA_ROW_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_ROW_VECTORS_INL_H
#undef STRATA_ROW_VECTORS_INL_H
#else
#define STRATA_ROW_VECTORS_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

/// Loads the first n lanes; the others are zero.
template <typename T, typename Tag>
HWY_INLINE hn::Vec<Tag> load(Tag d, const T* from, int n) {
  if (n == static_cast<int>(hn::Lanes(d))) return hn::LoadU(d, from);
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, n * sizeof(T));
  return hn::LoadU(d, padded);
}

template <typename T, typename Tag>
HWY_INLINE void store(hn::Vec<Tag> v, Tag d, T* to, int n) {
  if (n == static_cast<int>(hn::Lanes(d))) return hn::StoreU(v, d, to);
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(v, d, padded);
  std::memcpy(to, padded, n * sizeof(T));
}

/// Calls body(first, n) for each vector of a row.
template <typename Body>
HWY_INLINE void for_each_vector(int width, Body body) {
  const int lanes = static_cast<int>(hn::Lanes(D()));
  int i = 0;
  for (; i + lanes <= width; i += lanes) body(i, lanes);
  if (i < width) body(i, width - i);
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_ROW_VECTORS_INL_H
