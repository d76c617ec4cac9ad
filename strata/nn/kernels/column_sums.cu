#include "strata/nn/kernels/column_tiles.h"

namespace strata::cuda {
namespace {

using simt::kWide;

// dgain += dy xhat and, for a LayerNorm, dbias += dy.
template <typename T, bool kHasMean>
struct NormTerms {
  using Element = T;
  static constexpr int kSums = kHasMean ? 2 : 1;
  const T* x;
  const T* dy;
  const float* mean;
  const float* rstd;
  std::int64_t columns;

  STRATA_DEVICE bool lies_whole() const { return simt::lie_whole(x, dy); }
  template <typename Left>
  STRATA_DEVICE void add(std::int64_t row, std::int64_t column, Left left,
                         simt::Floats<kWide<T>> (&sums)[kSums]) const {
    const auto in = simt::load<kWide<T>>(x + row * columns + column, left);
    const auto gradient = simt::load<kWide<T>>(dy + row * columns + column, left);
    const float scale = rstd[row];
    float center = 0;
    if constexpr (kHasMean) center = mean[row];
    STRATA_UNROLL
    for (int k = 0; k < kWide<T>; ++k) {
      const float centered = kHasMean ? in[k] - center : in[k];
      sums[0][k] = simt::fma(gradient[k], centered * scale, sums[0][k]);
      if constexpr (kHasMean) sums[1][k] += gradient[k];
    }
  }
};

}  // namespace

std::int64_t column_workspace(std::int64_t rows, std::int64_t columns) {
  return 2 * (simt::blocks_for(rows, kColumnTile) + 1) * columns;
}

void add_column_sums(Element element, const void* x, float* sum, std::int64_t rows,
                     std::int64_t columns, float* workspace, void* stream) {
  STRATA_WITH_ELEMENT(element, sum_columns(ColumnValues<T>{static_cast<const T*>(x), columns}, rows,
                                           columns, {sum}, 0, workspace, stream));
}

void norm_weight_gradient(Element element, const void* x, const void* dy, const float* mean,
                          const float* rstd, float* dgain, float* dbias, std::int64_t rows,
                          std::int64_t columns, float* workspace, void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const T *in = static_cast<const T*>(x), *gradient = static_cast<const T*>(dy);
    if (mean) {
      sum_columns(NormTerms<T, true>{in, gradient, mean, rstd, columns}, rows, columns,
                  {dgain, dbias}, 0, workspace, stream);
    } else {
      sum_columns(NormTerms<T, false>{in, gradient, nullptr, rstd, columns}, rows, columns, {dgain},
                  0, workspace, stream);
    }
  });
}

}  // namespace strata::cuda
