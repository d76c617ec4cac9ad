#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/gelu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "hwy/contrib/math/math-inl.h"
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr float kTwoK = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

// sigmoid(2 k (x + c x^3)): the share of x that GELU passes.
HWY_INLINE V gate(D d, V x) {
  const V square = hn::Mul(x, x);
  const V inner = hn::MulAdd(hn::Mul(hn::Set(d, kCubic), square), x, x);
  // Clamped: beyond, the gate is 0 or 1 in fp32, and exp stays finite.
  const V minus = hn::Min(hn::Mul(hn::Set(d, -kTwoK), inner), hn::Set(d, 87.0f));
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), hn::Exp(d, minus)));
}

// d gelu / dx = s + x s (1 - s) 2k (1 + 3 c x^2)
HWY_INLINE V slope(D d, V x, V s) {
  const V square = hn::Mul(x, x);
  const V inner =
      hn::Mul(hn::Set(d, kTwoK), hn::MulAdd(hn::Set(d, 3 * kCubic), square, hn::Set(d, 1.0f)));
  const V side = hn::Mul(hn::Mul(x, s), hn::Sub(hn::Set(d, 1.0f), s));
  return hn::MulAdd(side, inner, s);
}

// The last vector is a padded copy, so that every element is computed by the same instructions.
template <typename T>
void gelu_of(const T* x, T* y, std::int64_t n) {
  const D d;
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    const V v = load_partial(x + i, count);
    store_partial(hn::Mul(v, gate(d, v)), y + i, count);
  });
}

template <typename T, bool kAgain>
void gelu_backward_of(const T* x, const T* dy, T* dx, T* y, std::int64_t n) {
  const D d;
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    const V v = load_partial(x + i, count), gradient = load_partial(dy + i, count);
    const V s = gate(d, v);
    store_partial(hn::Mul(gradient, slope(d, v, s)), dx + i, count);
    if constexpr (kAgain) store_partial(hn::Mul(v, s), y + i, count);
  });
}

void Gelu(Element element, const void* x, void* y, std::int64_t n) {
  STRATA_WITH_ELEMENT(element, gelu_of(static_cast<const T*>(x), static_cast<T*>(y), n));
}

void GeluBackward(Element element, const void* x, const void* dy, void* dx, std::int64_t n) {
  STRATA_WITH_ELEMENT(
      element, gelu_backward_of<T, false>(static_cast<const T*>(x), static_cast<const T*>(dy),
                                          static_cast<T*>(dx), nullptr, n));
}

void GeluBackwardAgain(Element element, const void* x, const void* dy, void* dx, void* y,
                       std::int64_t n) {
  STRATA_WITH_ELEMENT(element,
                      gelu_backward_of<T, true>(static_cast<const T*>(x), static_cast<const T*>(dy),
                                                static_cast<T*>(dx), static_cast<T*>(y), n));
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(Gelu);
HWY_EXPORT(GeluBackward);
HWY_EXPORT(GeluBackwardAgain);

void gelu(Element element, const void* x, void* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Gelu)(element, x, y, n);
}
void gelu_backward(Element element, const void* x, const void* dy, void* dx, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(GeluBackward)(element, x, dy, dx, n);
}
void gelu_backward(Element element, const void* x, const void* dy, void* dx, void* y,
                   std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(GeluBackwardAgain)(element, x, dy, dx, y, n);
}
}  // namespace strata::kernels
#endif
