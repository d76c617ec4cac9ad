// A thread computes 16 bytes of the result, so that a multiprocessor has 32 KiB of reads in flight.
// Dropout draws four masks per Philox block, as in dropout.cpp.
#include "strata/base/philox.h"
#include "strata/device/simt/simt_vector.h"
#include "strata/device/step_scalars.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {
namespace {

using simt::Block;
using simt::each_vector;
using simt::floats;
using simt::kWide;
using simt::lie_whole;
using simt::load;
using simt::RowVectors;
using simt::store;

constexpr int kBlockThreads = 256;

template <typename T>
struct Add {
  static constexpr int kThreads = kBlockThreads;
  const T* a;
  const T* b;
  T* y;
  std::int64_t n;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    each_vector<T>(block, n, lie_whole(a, b, y), [&](std::int64_t i, auto left) {
      const auto first = load<kWide<T>>(a + i, left), second = load<kWide<T>>(b + i, left);
      store(floats<kWide<T>>([&](int k) { return first[k] + second[k]; }), y + i, left);
    });
  }
};

template <typename T>
struct AddRepeated {
  static constexpr int kThreads = kBlockThreads;
  T* x;
  const T* table;
  std::int64_t length;
  RowVectors vectors;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const bool whole = lie_whole(x, table);
    vectors.each<T>(block, whole, [&](std::int64_t row, std::int64_t column, auto left) {
      T* to = x + row * vectors.columns + column;
      const auto first = load<kWide<T>>(to, left);
      const auto second = load<kWide<T>>(table + row % length * vectors.columns + column, left);
      store(floats<kWide<T>>([&](int k) { return first[k] + second[k]; }), to, left);
    });
  }
};

template <typename T>
struct MultiplyAdd {
  static constexpr int kThreads = kBlockThreads;
  const T* a;
  const T* b;
  const T* c;
  T* y;
  std::int64_t n;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    each_vector<T>(block, n, lie_whole(a, b, c, y), [&](std::int64_t i, auto left) {
      const auto first = load<kWide<T>>(a + i, left), second = load<kWide<T>>(b + i, left);
      const auto third = c ? load<kWide<T>>(c + i, left) : simt::zeros<kWide<T>>();
      store(floats<kWide<T>>([&](int k) { return simt::fma(first[k], second[k], third[k]); }),
            y + i, left);
    });
  }
};

template <typename T>
struct DropoutAdd {
  static constexpr int kThreads = kBlockThreads;
  const T* residual;
  const T* x;
  T* y;
  SampleMask of;
  RowVectors vectors;  // a row is a sample
  const StepScalars* scalars;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const std::uint64_t key =
        scalars ? mix_key(of.mask.key, static_cast<std::uint64_t>(scalars->step)) : of.mask.key;
    const bool whole = lie_whole(residual, x, y);
    vectors.each<T>(block, whole, [&](std::int64_t sample, std::int64_t element, auto left) {
      const std::int64_t at = sample * vectors.columns + element;
      const auto in = load<kWide<T>>(x + at, left);
      const auto before = residual ? load<kWide<T>>(residual + at, left) : simt::zeros<kWide<T>>();
      simt::Floats<kWide<T>> out;
      STRATA_UNROLL
      for (int quad = 0; quad < kWide<T>; quad += 4) {
        const auto counter = static_cast<std::uint32_t>((of.first_element + element + quad) / 4);
        const PhiloxBlock words =
            philox({counter, static_cast<std::uint32_t>(of.first_sample + sample), of.mask.site, 0},
                   {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
        STRATA_UNROLL
        for (int k = 0; k < 4; ++k) {
          const float kept = words[k] >= of.mask.threshold ? in[quad + k] * of.mask.scale : 0.0f;
          // Not before[...] + kept: without a residual, a kept -0 stays -0.
          out[quad + k] = residual ? before[quad + k] + kept : kept;
        }
      }
      store(out, y + at, left);
    });
  }
};

}  // namespace

void add(Element element, const void* a, const void* b, void* y, std::int64_t n, void* stream) {
  STRATA_WITH_ELEMENT(element, simt::launch(Add<T>{static_cast<const T*>(a),
                                                   static_cast<const T*>(b), static_cast<T*>(y), n},
                                            simt::vector_blocks<T>(n, kBlockThreads), stream));
}

void add_repeated(Element element, void* x, const void* table, std::int64_t rows,
                  std::int64_t length, std::int64_t columns, void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const auto vectors = RowVectors::of<T>(rows, columns);
    simt::launch(AddRepeated<T>{static_cast<T*>(x), static_cast<const T*>(table), length, vectors},
                 vectors.blocks(kBlockThreads), stream);
  });
}

void multiply_add(Element element, const void* a, const void* b, const void* c, void* y,
                  std::int64_t n, void* stream) {
  STRATA_WITH_ELEMENT(
      element, simt::launch(MultiplyAdd<T>{static_cast<const T*>(a), static_cast<const T*>(b),
                                           static_cast<const T*>(c), static_cast<T*>(y), n},
                            simt::vector_blocks<T>(n, kBlockThreads), stream));
}

void dropout_add(Element element, const void* residual, const void* x, void* y,
                 const SampleMask& mask, std::int64_t samples, std::int64_t per_sample,
                 const StepScalars* scalars, void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const auto vectors = RowVectors::of<T>(samples, per_sample);
    simt::launch(DropoutAdd<T>{static_cast<const T*>(residual), static_cast<const T*>(x),
                               static_cast<T*>(y), mask, vectors, scalars},
                 vectors.blocks(kBlockThreads), stream);
  });
}

}  // namespace strata::cuda
