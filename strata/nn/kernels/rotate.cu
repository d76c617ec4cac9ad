// A thread turns 16 bytes of a head's first half against those of its second half.
#include "strata/device/simt/simt_vector.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {
namespace {

using simt::kWide;
using simt::load;
using simt::RowVectors;
using simt::store;

template <typename T>
struct Rotate {
  static constexpr int kThreads = 256;
  T* x;
  HeadRows at;
  const float* table;
  float direction;
  RowVectors vectors;  // a row is half a head

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    const bool whole = simt::lie_whole(x, table) &&
                       (at.sample_stride | at.token_stride | at.width) % kWide<T> == 0;
    vectors.each<T>(block, whole, [&](std::int64_t row, std::int64_t column, auto left) {
      const std::int64_t token = row / at.heads, head = row - token * at.heads;
      const std::int64_t sample = token / at.length, position = token - sample * at.length;
      const std::int64_t half = vectors.columns;
      const float* angles = table + position * at.width + column;
      T* to = x + sample * at.sample_stride + position * at.token_stride + head * at.width + column;
      const auto cosines = load<kWide<T>>(angles, left);
      auto sines = load<kWide<T>>(angles + half, left);
      const auto first = load<kWide<T>>(to, left), second = load<kWide<T>>(to + half, left);
      STRATA_UNROLL
      for (int k = 0; k < kWide<T>; ++k) sines[k] = direction * sines[k];
      store(simt::floats<kWide<T>>(
                [&](int k) { return simt::fma(-second[k], sines[k], first[k] * cosines[k]); }),
            to, left);
      store(simt::floats<kWide<T>>(
                [&](int k) { return simt::fma(first[k], sines[k], second[k] * cosines[k]); }),
            to + half, left);
    });
  }
};

}  // namespace

void rotate(Element element, void* x, const HeadRows& at, const float* table, float direction,
            void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const auto vectors = RowVectors::of<T>(at.samples * at.length * at.heads, at.width / 2);
    simt::launch(Rotate<T>{static_cast<T*>(x), at, table, direction, vectors},
                 vectors.blocks(Rotate<T>::kThreads), stream);
  });
}

}  // namespace strata::cuda
