#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/swiglu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "hwy/contrib/math/math-inl.h"
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVector;

HWY_INLINE V sigmoid(D d, V x) {
  // Clamped: beyond, the gate is 0 in fp32, and exp stays finite.
  const V minus = hn::Min(hn::Neg(x), hn::Set(d, 87.0f));
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), hn::Exp(d, minus)));
}

template <typename T>
void swiglu_of(const T* gate_up, T* y, std::int64_t rows, std::int64_t width) {
  const D d;
  for (std::int64_t row = 0; row < rows; ++row, gate_up += 2 * width, y += width) {
    for_each_partial(width, [&](std::int64_t c, std::int64_t n) {
      const V gate = load_partial(gate_up + c, n), up = load_partial(gate_up + width + c, n);
      store_partial(hn::Mul(hn::Mul(gate, sigmoid(d, gate)), up), y + c, n);
    });
  }
}

// d silu / dx = s (1 + x (1 - s))
template <typename T>
void backward_of(const T* gate_up, const T* dy, T* dgate_up, T* y, std::int64_t rows,
                 std::int64_t width) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  for (std::int64_t row = 0; row < rows; ++row) {
    for_each_partial(width, [&](std::int64_t c, std::int64_t n) {
      const V gate = load_partial(gate_up + c, n), up = load_partial(gate_up + width + c, n);
      const V gradient = load_partial(dy + c, n);
      const V s = sigmoid(d, gate), silu = hn::Mul(gate, s);
      const V slope = hn::Mul(s, hn::MulAdd(gate, hn::Sub(one, s), one));
      store_partial(hn::Mul(hn::Mul(gradient, up), slope), dgate_up + c, n);
      store_partial(hn::Mul(gradient, silu), dgate_up + width + c, n);
      store_partial(hn::Mul(silu, up), y + c, n);
    });
    gate_up += 2 * width;
    dgate_up += 2 * width;
    dy += width;
    y += width;
  }
}

void Swiglu(Element element, const void* gate_up, void* y, std::int64_t rows, std::int64_t width) {
  STRATA_WITH_ELEMENT(element,
                      swiglu_of(static_cast<const T*>(gate_up), static_cast<T*>(y), rows, width));
}

void SwigluBackward(Element element, const void* gate_up, const void* dy, void* dgate_up, void* y,
                    std::int64_t rows, std::int64_t width) {
  STRATA_WITH_ELEMENT(element,
                      backward_of(static_cast<const T*>(gate_up), static_cast<const T*>(dy),
                                  static_cast<T*>(dgate_up), static_cast<T*>(y), rows, width));
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(Swiglu);
HWY_EXPORT(SwigluBackward);

void swiglu(Element element, const void* gate_up, void* y, std::int64_t rows, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(Swiglu)(element, gate_up, y, rows, width);
}
void swiglu_backward(Element element, const void* gate_up, const void* dy, void* dgate_up, void* y,
                     std::int64_t rows, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(SwigluBackward)(element, gate_up, dy, dgate_up, y, rows, width);
}
}  // namespace strata::kernels
#endif
