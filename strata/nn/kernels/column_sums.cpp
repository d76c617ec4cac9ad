#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/column_sums.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <typename T>
void add_sums(const T* x, float* sum, std::int64_t rows, std::int64_t columns, std::int64_t begin,
              std::int64_t end) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = for_each_strip<8>(begin, end, [&](std::int64_t first, auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    V total[kVectors];
    for (int k = 0; k < kVectors; ++k) total[k] = hn::Zero(d);
    for (std::int64_t row = 0; row < rows; ++row)
      for (int k = 0; k < kVectors; ++k)
        total[k] = hn::Add(total[k], load(d, x + row * columns + first + k * lanes));
    for (int k = 0; k < kVectors; ++k) {
      float* to = sum + first + k * lanes;
      hn::StoreU(hn::Add(hn::LoadU(d, to), total[k]), d, to);
    }
  });
  for (; c < end; ++c) {
    float total = 0;
    for (std::int64_t row = 0; row < rows; ++row) total += get(x + row * columns + c);
    sum[c] += total;
  }
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

void add_column_sums(Element element, const void* x, float* sum, std::int64_t rows,
                     std::int64_t columns, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(AddColumnSums)(element, x, sum, rows, columns, begin, end);
}
}  // namespace strata::kernels
#endif
