// A thread computes 16 bytes of the result. Formulas and their order are those of gelu.cpp,
// swiglu.cpp and elements.cpp.
#include "strata/device/simt/simt_math.h"
#include "strata/device/simt/simt_vector.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {
namespace {

using simt::Block;
using simt::each_vector;
using simt::kWide;
using simt::lie_whole;
using simt::RowVectors;

constexpr int kBlockThreads = 256;

// sigmoid(-minus). Clamped: beyond, the gate is 0 in fp32.
STRATA_DEVICE float sigmoid_of_minus(float minus) {
  return 1.0f / (1.0f + simt::exp(fminf(minus, 87.0f)));
}

constexpr float kTwoK = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

STRATA_DEVICE float gelu_gate(float x) {
  return sigmoid_of_minus(-kTwoK * simt::fma(kCubic * (x * x), x, x));
}

// d gelu / dx = s + x s (1 - s) 2k (1 + 3 c x^2)
STRATA_DEVICE float gelu_slope(float x, float gate) {
  const float inner = kTwoK * simt::fma(3 * kCubic, x * x, 1.0f);
  return simt::fma(x * gate * (1.0f - gate), inner, gate);
}

template <typename T>
struct Gelu {
  static constexpr int kThreads = kBlockThreads;
  const T* x;
  T* y;
  std::int64_t n;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    each_vector<T>(block, n, lie_whole(x, y), [&](std::int64_t i, auto left) {
      const auto in = simt::load<kWide<T>>(x + i, left);
      simt::store(simt::floats<kWide<T>>([&](int k) { return in[k] * gelu_gate(in[k]); }), y + i,
                  left);
    });
  }
};

template <typename T>
struct GeluBackward {
  static constexpr int kThreads = kBlockThreads;
  const T* x;
  const T* dy;
  T* dx;
  T* y;
  std::int64_t n;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    each_vector<T>(block, n, lie_whole(x, dy, dx, y), [&](std::int64_t i, auto left) {
      const auto in = simt::load<kWide<T>>(x + i, left),
                 gradient = simt::load<kWide<T>>(dy + i, left);
      const auto gate = simt::floats<kWide<T>>([&](int k) { return gelu_gate(in[k]); });
      simt::store(
          simt::floats<kWide<T>>([&](int k) { return gradient[k] * gelu_slope(in[k], gate[k]); }),
          dx + i, left);
      if (y)
        simt::store(simt::floats<kWide<T>>([&](int k) { return in[k] * gate[k]; }), y + i, left);
    });
  }
};

// A row of `width` outputs, whose gates and ups are one row of the input.
template <typename T>
struct Swiglu {
  static constexpr int kThreads = kBlockThreads;
  const T* gate_up;
  T* y;
  RowVectors vectors;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const bool whole = lie_whole(gate_up, y);
    vectors.each<T>(block, whole, [&](std::int64_t row, std::int64_t column, auto left) {
      const T* in = gate_up + 2 * row * vectors.columns + column;
      const auto gate = simt::load<kWide<T>>(in, left);
      const auto up = simt::load<kWide<T>>(in + vectors.columns, left);
      simt::store(simt::floats<kWide<T>>(
                      [&](int k) { return gate[k] * sigmoid_of_minus(-gate[k]) * up[k]; }),
                  y + row * vectors.columns + column, left);
    });
  }
};

// d silu / dx = s (1 + x (1 - s))
template <typename T>
struct SwigluBackward {
  static constexpr int kThreads = kBlockThreads;
  const T* gate_up;
  const T* dy;
  T* dgate_up;
  T* y;
  RowVectors vectors;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const bool whole = lie_whole(gate_up, dy, dgate_up, y);
    vectors.each<T>(block, whole, [&](std::int64_t row, std::int64_t column, auto left) {
      const std::int64_t width = vectors.columns;
      const std::int64_t in = 2 * row * width + column, out = row * width + column;
      const auto gate = simt::load<kWide<T>>(gate_up + in, left);
      const auto up = simt::load<kWide<T>>(gate_up + in + width, left);
      const auto gradient = simt::load<kWide<T>>(dy + out, left);
      simt::Floats<kWide<T>> dgate, dup, again;
      STRATA_UNROLL
      for (int k = 0; k < kWide<T>; ++k) {
        const float s = sigmoid_of_minus(-gate[k]), silu = gate[k] * s;
        dgate[k] = gradient[k] * up[k] * (s * simt::fma(gate[k], 1.0f - s, 1.0f));
        dup[k] = gradient[k] * silu;
        again[k] = silu * up[k];
      }
      simt::store(dgate, dgate_up + in, left);
      simt::store(dup, dgate_up + in + width, left);
      simt::store(again, y + out, left);
    });
  }
};

template <typename T>
struct Relu {
  static constexpr int kThreads = kBlockThreads;
  const T* x;
  const T* dy;  // null in forward
  T* to;
  std::int64_t n;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    each_vector<T>(block, n, lie_whole(x, dy, to), [&](std::int64_t i, auto left) {
      const auto in = simt::load<kWide<T>>(x + i, left);
      const auto through = dy ? simt::load<kWide<T>>(dy + i, left) : in;
      // A NaN stays one.
      simt::store(simt::floats<kWide<T>>([&](int k) { return in[k] <= 0.0f ? 0.0f : through[k]; }),
                  to + i, left);
    });
  }
};

}  // namespace

void gelu(Element element, const void* x, void* y, std::int64_t n, void* stream) {
  STRATA_WITH_ELEMENT(element,
                      simt::launch(Gelu<T>{static_cast<const T*>(x), static_cast<T*>(y), n},
                                   simt::vector_blocks<T>(n, kBlockThreads), stream));
}

void gelu_backward(Element element, const void* x, const void* dy, void* dx, void* y,
                   std::int64_t n, void* stream) {
  STRATA_WITH_ELEMENT(
      element, simt::launch(GeluBackward<T>{static_cast<const T*>(x), static_cast<const T*>(dy),
                                            static_cast<T*>(dx), static_cast<T*>(y), n},
                            simt::vector_blocks<T>(n, kBlockThreads), stream));
}

void swiglu(Element element, const void* gate_up, void* y, std::int64_t rows, std::int64_t width,
            void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const auto vectors = RowVectors::of<T>(rows, width);
    simt::launch(Swiglu<T>{static_cast<const T*>(gate_up), static_cast<T*>(y), vectors},
                 vectors.blocks(kBlockThreads), stream);
  });
}

void swiglu_backward(Element element, const void* gate_up, const void* dy, void* dgate_up, void* y,
                     std::int64_t rows, std::int64_t width, void* stream) {
  STRATA_WITH_ELEMENT(element, {
    const auto vectors = RowVectors::of<T>(rows, width);
    simt::launch(SwigluBackward<T>{static_cast<const T*>(gate_up), static_cast<const T*>(dy),
                                   static_cast<T*>(dgate_up), static_cast<T*>(y), vectors},
                 vectors.blocks(kBlockThreads), stream);
  });
}

void relu(Element element, const void* x, void* y, std::int64_t n, void* stream) {
  STRATA_WITH_ELEMENT(
      element, simt::launch(Relu<T>{static_cast<const T*>(x), nullptr, static_cast<T*>(y), n},
                            simt::vector_blocks<T>(n, kBlockThreads), stream));
}

void relu_backward(Element element, const void* x, const void* dy, void* dx, std::int64_t n,
                   void* stream) {
  STRATA_WITH_ELEMENT(element,
                      simt::launch(Relu<T>{static_cast<const T*>(x), static_cast<const T*>(dy),
                                           static_cast<T*>(dx), n},
                                   simt::vector_blocks<T>(n, kBlockThreads), stream));
}

}  // namespace strata::cuda
