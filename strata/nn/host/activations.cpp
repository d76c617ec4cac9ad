// Gradients overwrite dy if they have its shape: inside an MLP it is the largest tensor.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "strata/device/parallel.h"
#include "strata/nn/host/elements.h"
#include "strata/nn/host/host_primitives.h"

namespace strata {
namespace {

at::Tensor gelu_of(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    kernels::gelu(element_of(x), at_element(x, begin), mutable_at_element(y, begin), end - begin);
  });
  return y;
}

// dy becomes the gradient at x.
at::Tensor gelu_gradient(const at::Tensor& x, const at::Tensor& dy, at::Tensor* again) {
  if (again) *again = at::empty_like(x);
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    const void *in = at_element(x, begin), *gradient = at_element(dy, begin);
    void* dx = mutable_at_element(dy, begin);
    if (again) {
      kernels::gelu_backward(element_of(x), in, gradient, dx, mutable_at_element(*again, begin),
                             end - begin);
    } else {
      kernels::gelu_backward(element_of(x), in, gradient, dx, end - begin);
    }
  });
  return dy;
}

at::Tensor relu_of(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    kernels::relu(element_of(x), at_element(x, begin), mutable_at_element(y, begin), end - begin);
  });
  return y;
}

at::Tensor relu_gradient(const at::Tensor& x, const at::Tensor& dy, at::Tensor* again) {
  if (again) *again = relu_of(x);
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    kernels::relu_backward(element_of(x), at_element(x, begin), at_element(dy, begin),
                           mutable_at_element(dy, begin), end - begin);
  });
  return dy;
}

at::Tensor swiglu_of(const at::Tensor& gate_up) {
  std::vector<std::int64_t> shape = gate_up.sizes().vec();
  const std::int64_t width = shape.back() /= 2, rows = gate_up.numel() / (2 * width);
  at::Tensor y = at::empty(shape, gate_up.options());
  parallel_rows(rows, width, [&](std::int64_t begin, std::int64_t end) {
    kernels::swiglu(element_of(y), at_element(gate_up, begin * 2 * width),
                    mutable_at_element(y, begin * width), end - begin, width);
  });
  return y;
}

// dy becomes the output again: the kernel computes it for the gate's gradient anyway.
at::Tensor swiglu_gradient(const at::Tensor& gate_up, const at::Tensor& dy, at::Tensor* again) {
  at::Tensor dgate_up = at::empty_like(gate_up);
  const std::int64_t width = dy.size(-1), rows = dy.numel() / width;
  parallel_rows(rows, width, [&](std::int64_t begin, std::int64_t end) {
    kernels::swiglu_backward(element_of(dy), at_element(gate_up, begin * 2 * width),
                             at_element(dy, begin * width),
                             mutable_at_element(dgate_up, begin * 2 * width),
                             mutable_at_element(dy, begin * width), end - begin, width);
  });
  if (again) *again = dy;
  return dgate_up;
}

}  // namespace

at::Tensor HostElementPrimitives::activate(Activation kind, const at::Tensor& x) const {
  switch (kind) {
    case Activation::kGelu:
      return gelu_of(x);
    case Activation::kSwiglu:
      return swiglu_of(x);
    case Activation::kRelu:
      return relu_of(x);
  }
  STRATA_CHECK(false, "nn.activate");
  return {};
}

at::Tensor HostElementPrimitives::activation_gradient(Activation kind, const at::Tensor& x,
                                                      const at::Tensor& dy,
                                                      at::Tensor* again) const {
  switch (kind) {
    case Activation::kGelu:
      return gelu_gradient(x, dy, again);
    case Activation::kSwiglu:
      return swiglu_gradient(x, dy, again);
    case Activation::kRelu:
      return relu_gradient(x, dy, again);
  }
  STRATA_CHECK(false, "nn.activation_gradient");
  return {};
}

at::Tensor HostElementPrimitives::add(const at::Tensor& a, const at::Tensor& b) const {
  at::Tensor y = at::empty_like(a);
  parallel_elements(a.numel(), [&](std::int64_t begin, std::int64_t end) {
    kernels::add(element_of(a), at_element(a, begin), at_element(b, begin),
                 mutable_at_element(y, begin), end - begin);
  });
  return y;
}

at::Tensor HostElementPrimitives::multiply_add(const at::Tensor& a, const at::Tensor& b,
                                               const at::Tensor& c) const {
  at::Tensor y = at::empty_like(a);
  parallel_elements(a.numel(), [&](std::int64_t begin, std::int64_t end) {
    kernels::multiply_add(element_of(a), at_element(a, begin), at_element(b, begin),
                          c.defined() ? at_element(c, begin) : nullptr,
                          mutable_at_element(y, begin), end - begin);
  });
  return y;
}

void HostElementPrimitives::add_bias(const at::Tensor& x, const at::Tensor& bias) const {
  const std::int64_t width = x.size(-1), rows = x.numel() / width;
  parallel_rows(rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      kernels::add(element_of(x), at_element(x, row * width), bias.const_data_ptr(),
                   mutable_at_element(x, row * width), width);
  });
}

at::Tensor HostElementPrimitives::dropout_add(const at::Tensor& residual, const at::Tensor& x,
                                              const MaskOfSamples& mask) const {
  STRATA_CHECK(!mask.scalars, "nn.dropout_add");
  at::Tensor y = at::empty_like(x);
  const std::int64_t samples = x.size(0), per_sample = x.numel() / samples;
  const std::int64_t before = mask.part * per_sample;  // elements of the sample on the ranks before
  // Pieces never cross samples; the size is a multiple of the widest vector's four blocks.
  constexpr std::int64_t kPiece = 8192;
  const std::int64_t pieces = (per_sample + kPiece - 1) / kPiece;
  const auto apply = [&](std::int64_t piece) {
    const std::int64_t sample = piece / pieces, within = piece % pieces * kPiece;
    const std::int64_t first = sample * per_sample + within;
    kernels::dropout_add(element_of(x), residual.defined() ? at_element(residual, first) : nullptr,
                         at_element(x, first), mutable_at_element(y, first), mask.mask,
                         static_cast<std::uint32_t>(mask.first_sample + sample), before + within,
                         std::min(kPiece, per_sample - within));
  };
  parallel_ranges(samples * pieces, 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) apply(piece);
  });
  return y;
}

}  // namespace strata
