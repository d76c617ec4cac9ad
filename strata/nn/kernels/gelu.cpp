#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/gelu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr float kTwoK = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

// sigmoid(2 k (x + c x^3)): the share of x that GELU lets through.
HWY_INLINE V gate(D d, V x) {
  const V square = hn::Mul(x, x);
  const V inner = hn::MulAdd(hn::Mul(hn::Set(d, kCubic), square), x, x);
  // Clamped: beyond, the gate is 0 or 1 in fp32, and exp stays finite.
  const V minus = hn::Min(hn::Mul(hn::Set(d, -kTwoK), inner), hn::Set(d, 87.0f));
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), hn::Exp(d, minus)));
}

// d gelu / dx = s + x s (1 - s) 2k (1 + 3 c x^2)
HWY_INLINE V slope(D d, V x, V s) {
  const V square = hn::Mul(x, x);
  const V inner =
      hn::Mul(hn::Set(d, kTwoK), hn::MulAdd(hn::Set(d, 3 * kCubic), square, hn::Set(d, 1.0f)));
  const V side = hn::Mul(hn::Mul(x, s), hn::Sub(hn::Set(d, 1.0f), s));
  return hn::MulAdd(side, inner, s);
}

// Runs `body` on whole vectors and on a padded copy of the rest, so that every element meets the
// same instructions wherever it stands. kIn arrays are read, kOut written.
template <int kIn, int kOut, typename Body>
HWY_INLINE void for_each_vector(const float* const (&in)[kIn], float* const (&out)[kOut],
                                std::int64_t n, Body body) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  V x[kIn], y[kOut];
  for (; i + lanes <= n; i += lanes) {
    for (int k = 0; k < kIn; ++k) x[k] = hn::LoadU(d, in[k] + i);
    body(d, x, y);
    for (int k = 0; k < kOut; ++k) hn::StoreU(y[k], d, out[k] + i);
  }
  if (i == n) return;
  HWY_ALIGN float padded[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int k = 0; k < kIn; ++k) {
    for (std::int64_t j = i; j < n; ++j) padded[j - i] = in[k][j];
    x[k] = hn::Load(d, padded);
  }
  body(d, x, y);
  for (int k = 0; k < kOut; ++k) {
    hn::Store(y[k], d, padded);
    for (std::int64_t j = i; j < n; ++j) out[k][j] = padded[j - i];
  }
}

void Gelu(const float* x, float* y, std::int64_t n) {
  for_each_vector<1, 1>({x}, {y}, n,
                        [](D d, const V* in, V* out) { out[0] = hn::Mul(in[0], gate(d, in[0])); });
}

void GeluBackward(const float* x, const float* dy, float* dx, std::int64_t n) {
  for_each_vector<2, 1>({x, dy}, {dx}, n, [](D d, const V* in, V* out) {
    out[0] = hn::Mul(in[1], slope(d, in[0], gate(d, in[0])));
  });
}

void GeluBackwardAgain(const float* x, const float* dy, float* dx, float* y, std::int64_t n) {
  for_each_vector<2, 2>({x, dy}, {dx, y}, n, [](D d, const V* in, V* out) {
    const V s = gate(d, in[0]);
    out[0] = hn::Mul(in[1], slope(d, in[0], s));
    out[1] = hn::Mul(in[0], s);
  });
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(Gelu);
HWY_EXPORT(GeluBackward);
HWY_EXPORT(GeluBackwardAgain);

void gelu(const float* x, float* y, std::int64_t n) { HWY_DYNAMIC_DISPATCH(Gelu)(x, y, n); }
void gelu_backward(const float* x, const float* dy, float* dx, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(GeluBackward)(x, dy, dx, n);
}
void gelu_backward(const float* x, const float* dy, float* dx, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(GeluBackwardAgain)(x, dy, dx, y, n);
}
}  // namespace strata::kernels
#endif
