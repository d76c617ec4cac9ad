// The statistics need two passes, as in batch_norm.cpp: a one-pass formula cancels if the mean is
// large compared with the deviation.
#include "strata/nn/kernels/column_tiles.h"

namespace strata::cuda {
namespace {

using kernels::BatchNormColumns;
using simt::Block;
using simt::floats;
using simt::lie_whole;
using simt::load;
using simt::RowVectors;

constexpr int kBlockThreads = 256;
constexpr int kVector = simt::kWide<float>;
using Vector = simt::Floats<kVector>;

STRATA_DEVICE bool norm_lies_whole(const BatchNormColumns& norm) {
  return lie_whole(norm.gain, norm.bias, norm.mean, norm.variance);
}

// (x - mean)^2
struct SquareTerms {
  using Element = float;
  static constexpr int kSums = 1;
  const float* x;
  const float* mean;
  std::int64_t columns;

  STRATA_DEVICE bool lies_whole() const { return lie_whole(x, mean); }
  template <typename Left>
  STRATA_DEVICE void add(std::int64_t row, std::int64_t column, Left left,
                         Vector (&sums)[kSums]) const {
    const auto in = load<kVector>(x + row * columns + column, left);
    const auto center = load<kVector>(mean + column, left);
    STRATA_UNROLL
    for (int k = 0; k < kVector; ++k) {
      const float off = in[k] - center[k];
      sums[0][k] = simt::fma(off, off, sums[0][k]);
    }
  }
};

// The values of a thread's columns.
struct Columns {
  Vector gain, bias, center, scale;
  template <typename Left>
  STRATA_DEVICE Columns(const BatchNormColumns& norm, std::int64_t column, Left left)
      : gain(load<kVector>(norm.gain + column, left)),
        bias(load<kVector>(norm.bias + column, left)),
        center(load<kVector>(norm.mean + column, left)) {
    const auto variance = load<kVector>(norm.variance + column, left);
    scale = floats<kVector>([&](int k) { return 1.0f / sqrtf(variance[k] + norm.epsilon); });
  }
  STRATA_DEVICE float hat(float x, int k) const { return (x - center[k]) * scale[k]; }
};

// dgain += dy xhat, dbias += dy
struct GradientTerms {
  using Element = float;
  static constexpr int kSums = 2;
  const float* x;
  const float* dy;
  BatchNormColumns norm;
  std::int64_t columns;

  STRATA_DEVICE bool lies_whole() const { return lie_whole(x, dy) && norm_lies_whole(norm); }
  template <typename Left>
  STRATA_DEVICE void add(std::int64_t row, std::int64_t column, Left left,
                         Vector (&sums)[kSums]) const {
    const Columns of(norm, column, left);
    const auto in = load<kVector>(x + row * columns + column, left);
    const auto gradient = load<kVector>(dy + row * columns + column, left);
    STRATA_UNROLL
    for (int k = 0; k < kVector; ++k) {
      sums[0][k] = simt::fma(gradient[k], of.hat(in[k], k), sums[0][k]);
      sums[1][k] += gradient[k];
    }
  }
};

struct Normalise {
  static constexpr int kThreads = kBlockThreads;
  const float* x;
  BatchNormColumns norm;
  float* y;
  RowVectors vectors;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const bool whole = lie_whole(x, y) && norm_lies_whole(norm);
    vectors.each<float>(block, whole, [&](std::int64_t row, std::int64_t column, auto left) {
      const Columns of(norm, column, left);
      const std::int64_t at = row * vectors.columns + column;
      const auto in = load<kVector>(x + at, left);
      simt::store(floats<kVector>(
                      [&](int k) { return simt::fma(of.hat(in[k], k), of.gain[k], of.bias[k]); }),
                  y + at, left);
    });
  }
};

struct Backward {
  static constexpr int kThreads = kBlockThreads;
  const float* x;
  float* dy;
  BatchNormColumns norm;
  const float* gain_sums;
  const float* bias_sums;
  float* dgain;
  float* dbias;
  float share;  // 1 / rows
  RowVectors vectors;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const bool whole =
        lie_whole(x, dy, gain_sums, bias_sums, dgain, dbias) && norm_lies_whole(norm);
    vectors.each<float>(block, whole, [&](std::int64_t row, std::int64_t column, auto left) {
      const Columns of(norm, column, left);
      const std::int64_t at = row * vectors.columns + column;
      const auto in = load<kVector>(x + at, left), gradient = load<kVector>(dy + at, left);
      const auto gains = load<kVector>(gain_sums + column, left);
      const auto biases = load<kVector>(bias_sums + column, left);
      simt::store(floats<kVector>([&](int k) {
                    const float centered = gradient[k] - biases[k] * share;
                    return of.gain[k] * of.scale[k] *
                           simt::fma(-of.hat(in[k], k), gains[k] * share, centered);
                  }),
                  dy + at, left);
      if (row > 0) return;
      add_to(dgain + column, gains, left);
      add_to(dbias + column, biases, left);
    });
  }

  template <typename Left>
  STRATA_DEVICE static void add_to(float* sum, const Vector& more, Left left) {
    const auto total = load<kVector>(sum, left);
    simt::store(floats<kVector>([&](int k) { return total[k] + more[k]; }), sum, left);
  }
};

}  // namespace

void batch_statistics(const float* x, float* mean, float* variance, std::int64_t rows,
                      std::int64_t columns, float* workspace, void* stream) {
  const auto count = static_cast<float>(rows);
  sum_columns(ColumnValues<float>{x, columns}, rows, columns, {mean}, count, workspace, stream);
  sum_columns(SquareTerms{x, mean, columns}, rows, columns, {variance}, count, workspace, stream);
}

void batch_norm(const float* x, const BatchNormColumns& norm, float* y, std::int64_t rows,
                std::int64_t columns, void* stream) {
  const auto vectors = RowVectors::of<float>(rows, columns);
  simt::launch(Normalise{x, norm, y, vectors}, vectors.blocks(kBlockThreads), stream);
}

void batch_norm_backward(const float* x, float* dy, const BatchNormColumns& norm, float* dgain,
                         float* dbias, std::int64_t rows, std::int64_t columns, float* workspace,
                         void* stream) {
  // Uses the last two rows of the workspace.
  float* gains = workspace + column_workspace(rows, columns) - 2 * columns;
  float* biases = gains + columns;
  sum_columns(GradientTerms{x, dy, norm, columns}, rows, columns, {gains, biases}, 1, workspace,
              stream);
  const auto vectors = RowVectors::of<float>(rows, columns);
  simt::launch(
      Backward{x, dy, norm, gains, biases, dgain, dbias, 1.0f / static_cast<float>(rows), vectors},
      vectors.blocks(kBlockThreads), stream);
}

}  // namespace strata::cuda
