// A warp computes a row of up to 2 KiB, a block a longer one. A thread keeps its part of the row in
// registers, as read, until the row is written, so that x is read once: 16-bit elements need half
// the registers of fp32, so twice as many rows are in flight. Rows above 16 KiB and unaligned ones
// are read again, from the cache.
//
// The variance needs a second pass over the row, as in layer_norm.cpp. Each thread sums its vectors
// in ascending order, then the block's tree adds the threads: bits depend only on the row's length
// and element type.
#include "strata/device/simt/simt_vector.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {
namespace {

using simt::Block;
using simt::fetch;
using simt::floats;
using simt::kWide;
using simt::lie_whole;
using simt::load;
using simt::RowVectors;
using simt::store;
using simt::Whole;
using simt::widened;

constexpr int kBlockThreads = 256;
constexpr int kMostHeld = 4;  // vectors of 16 bytes per thread and array

// A thread's part of a row: kHeld entries, kThreads apart, each for a vector of 16 bytes; with
// kHeld 0 they are read each time.
template <typename Entry, typename Left, int kThreads, int kHeld, int kVector>
struct RowPart {
  Entry held[kHeld > 0 ? kHeld : 1];

  /// held = read(column, left): all reads are issued before the first result is used.
  template <typename Read>
  STRATA_DEVICE void read(int thread, std::int64_t columns, Read read) {
    if constexpr (kHeld > 0)
      each_column(thread, columns,
                  [&](int k, std::int64_t column, Left left) { held[k] = read(column, left); });
  }

  /// Calls body(entry, column, left) for every entry.
  template <typename Read, typename Body>
  STRATA_DEVICE void each(int thread, std::int64_t columns, Read read, Body body) const {
    each_column(thread, columns, [&](int k, std::int64_t column, Left left) {
      if constexpr (kHeld > 0) {
        body(held[k], column, left);
      } else {
        body(read(column, left), column, left);
      }
    });
  }

 private:
  template <typename Body>
  STRATA_DEVICE static void each_column(int thread, std::int64_t columns, Body body) {
    if constexpr (kHeld > 0) {
      STRATA_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const std::int64_t column = (k * kThreads + thread) * kVector;
        if (column < columns) body(k, column, Left(columns - column));
      }
    } else {
      for (std::int64_t column = std::int64_t{thread} * kVector; column < columns;
           column += kThreads * kVector)
        body(0, column, Left(columns - column));
    }
  }
};

template <typename T>
struct ForwardArguments {
  const T* x;
  const T* gain;
  const T* bias;
  T* y;
  float* mean;
  float* rstd;
  std::int64_t columns;
  float epsilon;
};

// ((x - mean) rstd) gain + bias; RMSNorm: x rstd gain.
template <typename T, typename Left>
STRATA_DEVICE simt::Floats<kWide<T>> normalised(const simt::Floats<kWide<T>>& x, const T* gain,
                                                const T* bias, float mean, float rstd,
                                                std::int64_t column, Left left) {
  const auto gains = load<kWide<T>>(gain + column, left);
  if (!bias) return floats<kWide<T>>([&](int k) { return x[k] * rstd * gains[k]; });
  const auto biases = load<kWide<T>>(bias + column, left);
  return floats<kWide<T>>(
      [&](int k) { return simt::fma((x[k] - mean) * rstd, gains[k], biases[k]); });
}

template <typename T, typename Left, int kCount, int kHeld>
struct Forward {
  static constexpr int kThreads = kCount, kVector = kWide<T>;
  using Entry = simt::Packed<T, kVector>;
  ForwardArguments<T> of;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const std::int64_t columns = of.columns, first = block.index() * columns;
    auto part = block.per_thread(RowPart<Entry, Left, kThreads, kHeld, kVector>());
    auto partial = block.per_thread(0.0f);
    const auto read = [&](std::int64_t column, Left left) {
      return fetch<kVector>(of.x + first + column, left);
    };
    block.each([&](int thread) {
      part[thread].read(thread, columns, read);
      float sum = 0;
      part[thread].each(thread, columns, read, [&](const Entry& entry, std::int64_t, Left) {
        const auto x = widened(entry);
        STRATA_UNROLL
        for (int k = 0; k < kVector; ++k) sum = of.bias ? sum + x[k] : simt::fma(x[k], x[k], sum);
      });
      partial[thread] = sum;
    });
    const float total = block.sum(partial), inverse = 1.0f / static_cast<float>(columns);
    float mean = 0, variance = total / static_cast<float>(columns);
    if (of.bias) {
      mean = total * inverse;
      block.each([&](int thread) {
        float squares = 0;
        part[thread].each(thread, columns, read, [&](const Entry& entry, std::int64_t, Left left) {
          const auto x = widened(entry);
          STRATA_UNROLL
          for (int k = 0; k < kVector; ++k) {
            const float off = k < left ? x[k] - mean : 0.0f;
            squares = simt::fma(off, off, squares);
          }
        });
        partial[thread] = squares;
      });
      variance = block.sum(partial) * inverse;
    }
    const float rstd = 1.0f / sqrtf(variance + of.epsilon);
    block.each([&](int thread) {
      if (thread == 0) {
        if (of.bias) of.mean[block.index()] = mean;
        of.rstd[block.index()] = rstd;
      }
      part[thread].each(
          thread, columns, read, [&](const Entry& entry, std::int64_t column, Left left) {
            store(normalised<T>(widened(entry), of.gain, of.bias, mean, rstd, column, left),
                  of.y + first + column, left);
          });
    });
  }
};

template <typename T>
struct Again {
  static constexpr int kThreads = kBlockThreads;
  const T* x;
  const T* gain;
  const T* bias;
  const float* mean;
  const float* rstd;
  T* y;
  RowVectors vectors;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const bool whole = lie_whole(x, gain, bias, y);
    vectors.each<T>(block, whole, [&](std::int64_t row, std::int64_t column, auto left) {
      const std::int64_t at = row * vectors.columns + column;
      const float center = bias ? mean[row] : 0.0f;
      store(
          normalised<T>(load<kWide<T>>(x + at, left), gain, bias, center, rstd[row], column, left),
          y + at, left);
    });
  }
};

template <typename T>
struct BackwardArguments {
  const T* x;
  const T* dy;
  const T* gain;
  const float* mean;  // null: RMSNorm
  const float* rstd;
  T* dx;
  std::int64_t columns;
};

struct Sums {
  float g, gx;
  friend STRATA_DEVICE Sums operator+(Sums a, Sums b) { return {a.g + b.g, a.gx + b.gx}; }
};

// With g = dy gain:  LayerNorm  dx = rstd (g - mean(g) - xhat mean(g xhat))
//                    RMSNorm    dx = rstd (g - x mean(g x) rstd^2)
template <typename T, typename Left, int kCount, int kHeld>
struct Backward {
  static constexpr int kThreads = kCount, kVector = kWide<T>;
  struct Entry {
    simt::Packed<T, kVector> x, dy;
  };
  BackwardArguments<T> of;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const std::int64_t columns = of.columns, first = block.index() * columns;
    const float rstd = of.rstd[block.index()], center = of.mean ? of.mean[block.index()] : 0.0f;
    const auto hat = [&](float x) { return of.mean ? (x - center) * rstd : x; };  // RMSNorm: x
    const auto read = [&](std::int64_t column, Left left) {
      return Entry{fetch<kVector>(of.x + first + column, left),
                   fetch<kVector>(of.dy + first + column, left)};
    };
    auto part = block.per_thread(RowPart<Entry, Left, kThreads, kHeld, kVector>());
    auto partial = block.per_thread(Sums{0, 0});
    block.each([&](int thread) {
      part[thread].read(thread, columns, read);
      Sums sums{0, 0};
      part[thread].each(thread, columns, read,
                        [&](const Entry& entry, std::int64_t column, Left left) {
                          const auto gain = load<kVector>(of.gain + column, left);
                          const auto x = widened(entry.x), dy = widened(entry.dy);
                          STRATA_UNROLL
                          for (int k = 0; k < kVector; ++k) {  // after the end dy and gain are 0
                            sums.g = simt::fma(dy[k], gain[k], sums.g);
                            sums.gx = simt::fma(dy[k] * gain[k], hat(x[k]), sums.gx);
                          }
                        });
      partial[thread] = sums;
    });
    const Sums total = block.sum(partial);
    const float inverse = 1.0f / static_cast<float>(columns);
    const float mean_g = of.mean ? total.g * inverse : 0.0f;
    const float mean_gx =
        of.mean ? total.gx * inverse : total.gx * rstd * rstd / static_cast<float>(columns);
    block.each([&](int thread) {
      part[thread].each(
          thread, columns, read, [&](const Entry& entry, std::int64_t column, Left left) {
            const auto gain = load<kVector>(of.gain + column, left);
            const auto x = widened(entry.x), dy = widened(entry.dy);
            store(floats<kVector>([&](int k) {
                    const float g = dy[k] * gain[k];
                    return rstd * simt::fma(-hat(x[k]), mean_gx, of.mean ? g - mean_g : g);
                  }),
                  of.dx + first + column, left);
          });
    });
  }
};

// Launches one kernel per row, with as many threads as its length needs. whole: arrays are aligned.
template <template <typename, typename, int, int> class Kernel, typename T, typename Arguments>
void launch_rows(const Arguments& of, bool whole, std::int64_t rows, void* stream) {
  constexpr std::int64_t kHeld = kMostHeld * kWide<T>;  // elements per thread
  if (whole && of.columns % kWide<T> == 0) {
    if (of.columns <= simt::kWarp * kHeld) {
      simt::launch(Kernel<T, Whole, simt::kWarp, kMostHeld>{of}, rows, stream);
    } else if (of.columns <= kBlockThreads * kHeld) {
      simt::launch(Kernel<T, Whole, kBlockThreads, kMostHeld>{of}, rows, stream);
    } else {
      simt::launch(Kernel<T, Whole, kBlockThreads, 0>{of}, rows, stream);
    }
  } else if (of.columns <= simt::kWarp * kHeld) {
    simt::launch(Kernel<T, std::int64_t, simt::kWarp, 0>{of}, rows, stream);
  } else {
    simt::launch(Kernel<T, std::int64_t, kBlockThreads, 0>{of}, rows, stream);
  }
}

}  // namespace

void norm(Element element, const void* x, NormWeights weights, void* y, float* mean, float* rstd,
          std::int64_t rows, std::int64_t columns, float epsilon, void* stream) {
  const bool whole = lie_whole(x, weights.gain, weights.bias, y);
  STRATA_WITH_ELEMENT(
      element,
      launch_rows<Forward, T>(
          ForwardArguments<T>{static_cast<const T*>(x), static_cast<const T*>(weights.gain),
                              static_cast<const T*>(weights.bias), static_cast<T*>(y), mean, rstd,
                              columns, epsilon},
          whole, rows, stream));
}

void norm_again(Element element, const void* x, NormWeights weights, const float* mean,
                const float* rstd, void* y, std::int64_t rows, std::int64_t columns, void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const auto vectors = RowVectors::of<T>(rows, columns);
    simt::launch(
        Again<T>{static_cast<const T*>(x), static_cast<const T*>(weights.gain),
                 static_cast<const T*>(weights.bias), mean, rstd, static_cast<T*>(y), vectors},
        vectors.blocks(kBlockThreads), stream);
  });
}

void norm_backward(Element element, const void* x, const void* dy, NormWeights weights,
                   const float* mean, const float* rstd, void* dx, std::int64_t rows,
                   std::int64_t columns, void* stream) {
  const bool whole = lie_whole(x, dy, weights.gain, dx);
  STRATA_WITH_ELEMENT(element,
                      launch_rows<Backward, T>(
                          BackwardArguments<T>{static_cast<const T*>(x), static_cast<const T*>(dy),
                                               static_cast<const T*>(weights.gain), mean, rstd,
                                               static_cast<T*>(dx), columns},
                          whole, rows, stream));
}

}  // namespace strata::cuda
