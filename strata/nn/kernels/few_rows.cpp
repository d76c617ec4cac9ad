// A row reads a weight as fast as memory delivers it: blocks of four by eight elements are turned
// in registers, so that lanes are columns and each column's sum stays a chain.
#include <limits>

#include "strata/nn/kernels/decoding.h"

// The order is that of libraries for AVX2: kernels for more instructions would have the same bits.
#define HWY_DISABLED_TARGETS (HWY_AVX3 | HWY_AVX3_DL | HWY_SSE4 | HWY_SSSE3)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/few_rows.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/few_rows-inl.h"
#include "strata/nn/kernels/packed_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
// No kernel: the comparison with the library (few_rows.h) fails, so products are padded.
void MultiplyFew(const FewRows& x, const Columns& columns, float* y, std::int64_t y_stride) {
  for (std::int64_t row = 0; row < x.rows; ++row)
    for (std::int64_t o = 0; o < columns.out; ++o)
      y[row * y_stride + o] = std::numeric_limits<float>::quiet_NaN();
}
#else
template <typename T>
HWY_INLINE void multiply(const FewRows& x, const Columns& columns, float* y,
                         std::int64_t y_stride) {
  const auto* const weight = static_cast<const T*>(columns.weight);
  if (x.rows <= kRegisterRows) {
    multiply_rows(x.x, x.rows, x.x_stride, x.in, weight, columns.out, columns.bias, y, y_stride);
  } else {
    multiply_packed(x.x, x.rows, x.x_stride, x.in, weight, columns.out, columns.bias, y, y_stride);
  }
}

void MultiplyFew(const FewRows& x, const Columns& columns, float* y, std::int64_t y_stride) {
  STRATA_WITH_ELEMENT(columns.element, multiply<T>(x, columns, y, y_stride));
}
#endif

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(MultiplyFew);

void multiply_few(const FewRows& x, const Columns& columns, float* y, std::int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyFew)(x, columns, y, y_stride);
}
}  // namespace strata::kernels
#endif
