// A warp computes the products of one vector with the vectors before it. Each thread reads 16 bytes
// at once from the L1 cache, which holds a sample's vectors.
#include "strata/device/simt/simt_vector.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {
namespace {

using simt::Block;
using simt::load;
using simt::RowVectors;
using simt::store;

constexpr int kVector = simt::kWide<float>;

STRATA_DEVICE const float* vector_of(const FeatureBatch& x, std::int64_t sample, std::int64_t i) {
  if (!x.first) return x.rest + (sample * x.count + i) * x.width;
  return i == 0 ? x.first + sample * x.width : x.rest + (sample * (x.count - 1) + i - 1) * x.width;
}

// Elements of a sample's output before its products, and in total.
STRATA_DEVICE std::int64_t before_products(const FeatureBatch& x) { return x.first ? x.width : 0; }
STRATA_DEVICE std::int64_t out_width(const FeatureBatch& x) {
  return before_products(x) + x.count * (x.count - 1) / 2;
}
// Index of the pair i and j < i among the products.
STRATA_DEVICE std::int64_t pair(std::int64_t i, std::int64_t j) { return i * (i - 1) / 2 + j; }

struct Dots {
  static constexpr int kThreads = simt::kWarp;
  FeatureBatch x;
  float* y;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const std::int64_t sample = block.index() / x.count, i = block.index() - sample * x.count;
    const float* a = vector_of(x, sample, i);
    float* to = y + sample * out_width(x);
    if (i == 0 && x.first) {
      block.each([&](int thread) {
        each_own(thread, /*whole=*/false, [&](std::int64_t c, auto left) {
          store(load<kVector>(a + c, left), to + c, left);
        });
      });
    }
    const bool whole = simt::lie_whole(x.first, x.rest) && x.width % kVector == 0;
    auto partial = block.per_thread(0.0f);
    for (std::int64_t j = 0; j < i; ++j) {
      const float* b = vector_of(x, sample, j);
      block.each([&](int thread) {
        float sum = 0;
        each_own(thread, whole, [&](std::int64_t c, auto left) {
          const auto first = load<kVector>(a + c, left), second = load<kVector>(b + c, left);
          STRATA_UNROLL
          for (int k = 0; k < kVector; ++k) sum = simt::fma(first[k], second[k], sum);
        });
        partial[thread] = sum;
      });
      const float product = block.sum(partial);
      block.each([&](int thread) {
        if (thread == 0) to[before_products(x) + pair(i, j)] = product;
      });
    }
  }

  template <typename Body>
  STRATA_DEVICE void each_own(int thread, bool whole, Body body) const {
    for (std::int64_t c = std::int64_t{thread} * kVector; c < x.width; c += kThreads * kVector) {
      if (whole) {
        body(c, simt::Whole(x.width - c));
      } else {
        body(c, x.width - c);
      }
    }
  }
};

// Each vector adds its partners in ascending order, like the host, pair by pair.
struct DotsBackward {
  static constexpr int kThreads = 256;
  FeatureBatch x;
  const float* dy;
  float* dfirst;
  float* drest;
  RowVectors vectors;  // a row is a vector of a sample

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    // A sample's output is rarely aligned: only few rows have an aligned first vector to load from
    // it.
    const bool whole = simt::lie_whole(x.first, x.rest, dfirst, drest);
    vectors.each<float>(block, whole, [&](std::int64_t row, std::int64_t column, auto left) {
      const std::int64_t sample = row / x.count, i = row - sample * x.count;
      const float* gradients = dy + sample * out_width(x);
      const bool is_first = x.first && i == 0;
      auto total =
          is_first ? load<kVector>(gradients + column, std::int64_t{left}) : simt::zeros<kVector>();
      for (std::int64_t j = 0; j < x.count; ++j) {
        if (j == i) continue;
        const float gradient = gradients[before_products(x) + (j < i ? pair(i, j) : pair(j, i))];
        const auto partner = load<kVector>(vector_of(x, sample, j) + column, left);
        STRATA_UNROLL
        for (int k = 0; k < kVector; ++k) total[k] = simt::fma(gradient, partner[k], total[k]);
      }
      float* to = is_first ? dfirst + sample * x.width : drest + (vector_of(x, sample, i) - x.rest);
      store(total, to + column, left);
    });
  }
};

}  // namespace

void pairwise_dots(const FeatureBatch& x, float* y, void* stream) {
  simt::launch(Dots{x, y}, x.samples * x.count, stream);
}

void pairwise_dots_backward(const FeatureBatch& x, const float* dy, float* dfirst, float* drest,
                            void* stream) {
  const auto vectors = RowVectors::of<float>(x.samples * x.count, x.width);
  simt::launch(DotsBackward{x, dy, dfirst, drest, vectors}, vectors.blocks(DotsBackward::kThreads),
               stream);
}

}  // namespace strata::cuda
