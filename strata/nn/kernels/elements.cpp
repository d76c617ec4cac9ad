// The ends of pieces use padded vectors, so that an element's bits don't depend on where a piece
// ends.
#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/elements.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
void add_of(const T* a, const T* b, T* y, std::int64_t n) {
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    store_partial(hn::Add(load_partial(a + i, count), load_partial(b + i, count)), y + i, count);
  });
}

template <typename From, typename To>
void convert(const From* x, To* y, std::int64_t n) {
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    store_partial(load_partial(x + i, count), y + i, count);
  });
}

template <typename T>
void add_to_of(const T* x, float* sum, std::int64_t n) {
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    store_partial(hn::Add(load_partial(sum + i, count), load_partial(x + i, count)), sum + i,
                  count);
  });
}

template <typename T>
void relu_of(const T* x, T* y, std::int64_t n) {
  const FloatTag d;
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    const FloatVector v = load_partial(x + i, count);
    // A NaN stays one.
    store_partial(hn::IfThenElse(hn::Le(v, hn::Zero(d)), hn::Zero(d), v), y + i, count);
  });
}

template <typename T>
void relu_backward_of(const T* x, const T* dy, T* dx, std::int64_t n) {
  const FloatTag d;
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    const auto off = hn::Le(load_partial(x + i, count), hn::Zero(d));
    store_partial(hn::IfThenZeroElse(off, load_partial(dy + i, count)), dx + i, count);
  });
}

template <typename T>
void multiply_add_of(const T* a, const T* b, const T* c, T* y, std::int64_t n) {
  const FloatTag d;
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    const FloatVector factor = load_partial(a + i, count), other = load_partial(b + i, count);
    const FloatVector summand = c ? load_partial(c + i, count) : hn::Zero(d);
    store_partial(hn::MulAdd(factor, other, summand), y + i, count);
  });
}

void Relu(Element element, const void* x, void* y, std::int64_t n) {
  STRATA_WITH_ELEMENT(element, relu_of(static_cast<const T*>(x), static_cast<T*>(y), n));
}

void ReluBackward(Element element, const void* x, const void* dy, void* dx, std::int64_t n) {
  STRATA_WITH_ELEMENT(element, relu_backward_of(static_cast<const T*>(x), static_cast<const T*>(dy),
                                                static_cast<T*>(dx), n));
}

void MultiplyAdd(Element element, const void* a, const void* b, const void* c, void* y,
                 std::int64_t n) {
  STRATA_WITH_ELEMENT(element, multiply_add_of(static_cast<const T*>(a), static_cast<const T*>(b),
                                               static_cast<const T*>(c), static_cast<T*>(y), n));
}

void Add(Element element, const void* a, const void* b, void* y, std::int64_t n) {
  STRATA_WITH_ELEMENT(
      element, add_of(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), n));
}

void AddTo(Element element, const void* x, float* sum, std::int64_t n) {
  STRATA_WITH_ELEMENT(element, add_to_of(static_cast<const T*>(x), sum, n));
}

void Widen(Element element, const void* x, float* y, std::int64_t n) {
  STRATA_WITH_ELEMENT(element, convert(static_cast<const T*>(x), y, n));
}

void Narrow(Element element, const float* x, void* y, std::int64_t n) {
  STRATA_WITH_ELEMENT(element, convert(x, static_cast<T*>(y), n));
}

template <typename T>
void add_sums(const T* x, float* sum, std::int64_t rows, std::int64_t columns, std::int64_t begin,
              std::int64_t end) {
  const FloatTag d;
  add_columns<8>(
      sum, rows, columns, begin, end,
      [&](FloatVector total, std::int64_t, std::int64_t at) {
        return hn::Add(total, load(d, x + at));
      },
      [&](float total, std::int64_t, std::int64_t at) { return total + get(x + at); });
}

void AddColumnSums(Element element, const void* x, float* sum, std::int64_t rows,
                   std::int64_t columns, std::int64_t begin, std::int64_t end) {
  STRATA_WITH_ELEMENT(element, add_sums(static_cast<const T*>(x), sum, rows, columns, begin, end));
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(AddColumnSums);
HWY_EXPORT(Add);
HWY_EXPORT(AddTo);
HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(Relu);
HWY_EXPORT(ReluBackward);
HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

void add(Element element, const void* a, const void* b, void* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Add)(element, a, b, y, n);
}
void relu(Element element, const void* x, void* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Relu)(element, x, y, n);
}
void relu_backward(Element element, const void* x, const void* dy, void* dx, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(ReluBackward)(element, x, dy, dx, n);
}
void multiply_add(Element element, const void* a, const void* b, const void* c, void* y,
                  std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(MultiplyAdd)(element, a, b, c, y, n);
}
void add_to(Element element, const void* x, float* sum, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddTo)(element, x, sum, n);
}
void widen(Element element, const void* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Widen)(element, x, y, n);
}
void narrow(Element element, const float* x, void* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Narrow)(element, x, y, n);
}
void add_column_sums(Element element, const void* x, float* sum, std::int64_t rows,
                     std::int64_t columns, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(AddColumnSums)(element, x, sum, rows, columns, begin, end);
}
}  // namespace strata::kernels
#endif
