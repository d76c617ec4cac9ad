// Masks are drawn by Philox in int64 tensors that hold 32-bit words, with the counters of
// kernels/dropout.cpp. A product of two words is computed in halves, because int64 has a sign.
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <vector>

#include "strata/base/errors.h"
#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/aten/aten_scope.h"

namespace strata {
namespace {

constexpr std::int64_t kWordMask = 0xFFFFFFFF, kHalfMask = 0xFFFF;

std::int64_t wrapped(std::uint64_t x) { return static_cast<std::int64_t>(x); }

at::Tensor shifted_right(const at::Tensor& x, int bits) {  // zeros come in, for any sign
  return x.bitwise_right_shift(bits).bitwise_and(wrapped(~std::uint64_t{0} >> bits));
}

struct WordProduct {
  at::Tensor high, low;
};

WordProduct multiply_words(const at::Tensor& a, std::int64_t b) {
  const at::Tensor lower = a.bitwise_and(kHalfMask) * b;
  const at::Tensor middle = a.bitwise_right_shift(16) * b + lower.bitwise_right_shift(16);
  return {middle.bitwise_right_shift(16),
          middle.bitwise_and(kHalfMask).bitwise_left_shift(16).bitwise_or(
              lower.bitwise_and(kHalfMask))};
}

// mix_key() of base/philox.h, where b is on the device.
at::Tensor mixed_key(std::uint64_t a, const at::Tensor& b) {
  const auto folded = [](const at::Tensor& z, int bits) {
    return z.bitwise_xor(shifted_right(z, bits));
  };
  at::Tensor z = b.add(1).mul(wrapped(0x9E3779B97F4A7C15)).add(wrapped(a));
  z = folded(z, 30).mul(wrapped(0xBF58476D1CE4E5B9));
  z = folded(z, 27).mul(wrapped(0x94D049BB133111EB));
  return folded(z, 31);
}

// philox() of base/philox.h with counters {first, sample, site, 0}: words [samples, blocks, 4].
at::Tensor philox_words(const at::Tensor& first, const at::Tensor& sample, std::int64_t site,
                        const at::Tensor& key) {
  at::Tensor c0 = first, c1 = sample, c2 = at::full({}, site, first.options()),
             c3 = at::full({}, 0, first.options());
  at::Tensor k0 = key.bitwise_and(kWordMask), k1 = shifted_right(key, 32);
  for (int round = 0; round < 10; ++round) {
    const WordProduct p0 = multiply_words(c0, 0xD2511F53), p1 = multiply_words(c2, 0xCD9E8D57);
    c0 = p1.high.bitwise_xor(c1).bitwise_xor(k0);
    c1 = p1.low;
    c2 = p0.high.bitwise_xor(c3).bitwise_xor(k1);
    c3 = p0.low;
    k0 = k0.add(0x9E3779B9).bitwise_and(kWordMask);
    k1 = k1.add(0xBB67AE85).bitwise_and(kWordMask);
  }
  return at::stack({c0, c1, c2, c3}, -1);
}

// Whether each element is kept: [samples, elements per sample].
at::Tensor kept_elements(const at::Tensor& x, const MaskOfSamples& of) {
  const std::int64_t samples = x.size(0), per_sample = x.numel() / samples;
  const std::int64_t blocks = (per_sample + 3) / 4, first_block = of.part * per_sample / 4;
  const at::TensorOptions options = x.options().dtype(at::kLong);
  const at::Tensor key =
      of.scalars ? mixed_key(of.mask.key, StepTensors(*of.scalars, x.device())(&StepScalars::step))
                 : at::full({}, wrapped(of.mask.key), options);
  const at::Tensor block = at::arange(first_block, first_block + blocks, options).unsqueeze(0);
  const at::Tensor sample =
      at::arange(of.first_sample, of.first_sample + samples, options).unsqueeze(1);
  return philox_words(block.bitwise_and(kWordMask), sample.bitwise_and(kWordMask), of.mask.site,
                      key)
      .flatten(1)
      .narrow(1, 0, per_sample)
      .ge(static_cast<std::int64_t>(of.mask.threshold));
}

at::Tensor swiglu_gradient_by_aten(const at::Tensor& x, const at::Tensor& dy, at::Tensor* again) {
  at::Tensor dx = at::empty_like(x);
  const AtenScope scope;
  const std::int64_t width = dy.size(-1);
  const at::Tensor gate = as_float(x.narrow(-1, 0, width)),
                   up = as_float(x.narrow(-1, width, width));
  const at::Tensor gradient = as_float(dy), silu = at::silu(gate);
  dx.narrow(-1, 0, width).copy_(at::silu_backward(gradient * up, gate));
  dx.narrow(-1, width, width).copy_(gradient * silu);
  if (again) *again = dy.copy_(silu * up);
  return dx;
}

class AtenElementPrimitives final : public ElementPrimitives {
 public:
  at::Tensor activate(Activation kind, const at::Tensor& x) const override {
    std::vector<std::int64_t> shape = x.sizes().vec();
    if (kind == Activation::kSwiglu) shape.back() /= 2;
    at::Tensor y = at::empty(shape, x.options());
    const AtenScope scope;
    switch (kind) {
      case Activation::kGelu:
        return y.copy_(at::gelu(as_float(x), "tanh"));
      case Activation::kSwiglu: {
        const std::int64_t width = shape.back();
        return y.copy_(at::silu(as_float(x.narrow(-1, 0, width))) *
                       as_float(x.narrow(-1, width, width)));
      }
      case Activation::kRelu:
        return y.copy_(at::where(x.le(0), 0, x));  // a NaN stays one
    }
    STRATA_CHECK(false, "nn.aten_activate");
    return {};
  }

  at::Tensor activation_gradient(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                 at::Tensor* again) const override {
    if (kind == Activation::kSwiglu) return swiglu_gradient_by_aten(x, dy, again);
    if (again) *again = activate(kind, x);
    const AtenScope scope;
    if (kind == Activation::kRelu) return dy.copy_(at::where(x.le(0), 0, dy));
    return dy.copy_(at::gelu_backward(as_float(dy), as_float(x), "tanh"));
  }

  at::Tensor add(const at::Tensor& a, const at::Tensor& b) const override {
    at::Tensor y = at::empty_like(a);
    const AtenScope scope;
    return at::add_out(y, a, b);
  }

  void add_bias(const at::Tensor& x, const at::Tensor& bias) const override {
    const AtenScope scope;
    x.add_(bias);
  }

  at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x,
                         const MaskOfSamples& mask) const override {
    at::Tensor y = at::empty_like(x);
    const AtenScope scope;
    const at::Tensor kept =
        at::where(kept_elements(x, mask).view(x.sizes()), as_float(x) * mask.mask.scale, 0);
    return y.copy_(residual.defined() ? as_float(residual) + kept : kept);
  }

  at::Tensor multiply_add(const at::Tensor& a, const at::Tensor& b,
                          const at::Tensor& c) const override {
    at::Tensor y = at::empty_like(a);
    const AtenScope scope;
    const at::Tensor first = as_float(a), second = as_float(b);
    return y.copy_(c.defined() ? at::addcmul(as_float(c), first, second) : first * second);
  }
};

}  // namespace

const ElementPrimitives& aten_elements() {
  static const AtenElementPrimitives elements;
  return elements;
}

}  // namespace strata
