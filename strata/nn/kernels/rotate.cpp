// A token's heads share its angles, which are read once per head and stay in the cache.
#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/rotate.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
void rotate_of(T* x, const float* cosines, const float* sines, std::int64_t heads,
               std::int64_t width, float direction) {
  const std::int64_t half = width / 2;
  const FloatVector sign = hn::Set(FloatTag(), direction);
  for (std::int64_t head = 0; head < heads; ++head, x += width) {
    for_each_partial(half, [&](std::int64_t c, std::int64_t n) {
      const FloatVector cosine = load_partial(cosines + c, n);
      const FloatVector sine = hn::Mul(sign, load_partial(sines + c, n));
      const FloatVector first = load_partial(x + c, n), second = load_partial(x + half + c, n);
      store_partial(hn::NegMulAdd(second, sine, hn::Mul(first, cosine)), x + c, n);
      store_partial(hn::MulAdd(first, sine, hn::Mul(second, cosine)), x + half + c, n);
    });
  }
}

void Rotate(Element element, void* x, const float* cosines, const float* sines, std::int64_t heads,
            std::int64_t width, float direction) {
  STRATA_WITH_ELEMENT(element,
                      rotate_of(static_cast<T*>(x), cosines, sines, heads, width, direction));
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(Rotate);

void rotate(Element element, void* x, const float* cosines, const float* sines, std::int64_t heads,
            std::int64_t width, float direction) {
  HWY_DYNAMIC_DISPATCH(Rotate)(element, x, cosines, sines, heads, width, direction);
}
}  // namespace strata::kernels
#endif
