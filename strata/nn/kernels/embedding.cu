// Gradients without atomics: if positions share a row, one warp adds them in their order.
#include "strata/device/simt/simt_vector.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {
namespace {

using simt::Block;
using simt::kWide;
using simt::lie_whole;
using simt::load;
using simt::RowVectors;
using simt::store;

constexpr int kBlockThreads = 256;

template <typename T>
struct GatherRows {
  static constexpr int kThreads = kBlockThreads;
  const std::int64_t* tokens;
  const T* weight;
  T* y;
  std::int64_t first, count;
  RowVectors vectors;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const bool whole = lie_whole(weight, y);
    vectors.each<T>(block, whole, [&](std::int64_t position, std::int64_t column, auto left) {
      const std::int64_t row = tokens[position] - first;
      const bool here = row >= 0 && row < count;
      store(here ? load<kWide<T>>(weight + row * vectors.columns + column, left)
                 : simt::zeros<kWide<T>>(),
            y + position * vectors.columns + column, left);
    });
  }
};

// One warp for each sorted position and strip of columns; only warps at the beginning of a row
// work.
template <typename T>
struct AddRows {
  static constexpr int kThreads = simt::kWarp;
  static constexpr int kAhead = 4;  // reads in flight
  const std::int32_t* rows;
  const std::int32_t* order;
  const T* dy;
  float* sum;
  std::int64_t positions, width, count, strips;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const std::int64_t begin = block.index() / strips;
    const std::int64_t strip = block.index() - begin * strips;
    const std::int32_t row = rows[begin];
    if (row >= count || (begin > 0 && rows[begin - 1] == row)) return;
    const bool whole = lie_whole(dy, sum) && width % kWide<T> == 0;
    block.each([&](int thread) {
      const std::int64_t column = (strip * kThreads + thread) * kWide<T>, left = width - column;
      if (left <= 0) return;
      whole ? add(begin, column, simt::Whole(left)) : add(begin, column, left);
    });
  }

  template <typename Left>
  STRATA_DEVICE void add(std::int64_t begin, std::int64_t column, Left left) const {
    const std::int32_t row = rows[begin];
    float* to = sum + row * width + column;
    auto total = load<kWide<T>>(to, left);
    for (std::int64_t i = begin; i < positions && rows[i] == row; i += kAhead) {
      simt::Packed<T, kWide<T>> more[kAhead];
      bool is_row[kAhead];
      STRATA_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        is_row[k] = i + k < positions && rows[i + k] == row;
        if (is_row[k]) more[k] = simt::fetch<kWide<T>>(dy + order[i + k] * width + column, left);
      }
      STRATA_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        if (!is_row[k]) continue;
        const auto wide = simt::widened(more[k]);
        STRATA_UNROLL
        for (int e = 0; e < kWide<T>; ++e) total[e] += wide[e];
      }
    }
    store(total, to, left);
  }
};

template <typename T>
struct AddPositionGradients {
  static constexpr int kThreads = kBlockThreads;
  const T* dy;
  float* sum;
  std::int64_t samples;
  RowVectors vectors;  // a row is a position

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const bool whole = lie_whole(dy, sum);
    vectors.each<T>(block, whole, [&](std::int64_t position, std::int64_t column, auto left) {
      const std::int64_t at = position * vectors.columns + column;
      auto total = load<kWide<T>>(sum + at, left);
      STRATA_UNROLL_4
      for (std::int64_t sample = 0; sample < samples; ++sample) {
        const auto more = load<kWide<T>>(dy + sample * vectors.rows * vectors.columns + at, left);
        STRATA_UNROLL
        for (int k = 0; k < kWide<T>; ++k) total[k] += more[k];
      }
      store(total, sum + at, left);
    });
  }
};

}  // namespace

void gather_rows(Element element, const std::int64_t* tokens, const void* weight, void* y,
                 std::int64_t positions, std::int64_t width, std::int64_t first, std::int64_t count,
                 void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const auto vectors = RowVectors::of<T>(positions, width);
    simt::launch(GatherRows<T>{tokens, static_cast<const T*>(weight), static_cast<T*>(y), first,
                               count, vectors},
                 vectors.blocks(kBlockThreads), stream);
  });
}

void add_rows(Element element, const std::int32_t* rows, const std::int32_t* order, const void* dy,
              float* sum, std::int64_t positions, std::int64_t width, std::int64_t count,
              void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const std::int64_t strips = simt::blocks_for(width, simt::kWarp * kWide<T>);
    simt::launch(
        AddRows<T>{rows, order, static_cast<const T*>(dy), sum, positions, width, count, strips},
        positions * strips, stream);
  });
}

void add_position_gradients(Element element, const void* dy, float* sum, std::int64_t samples,
                            std::int64_t length, std::int64_t columns, void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const auto vectors = RowVectors::of<T>(length, columns);
    simt::launch(AddPositionGradients<T>{static_cast<const T*>(dy), sum, samples, vectors},
                 vectors.blocks(kBlockThreads), stream);
  });
}

}  // namespace strata::cuda
