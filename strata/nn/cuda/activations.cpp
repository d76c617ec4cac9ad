// Gradients overwrite dy if they have its shape, as on a host.
#include <ATen/ops/empty_like.h>

#include <vector>

#include "strata/nn/cuda/arguments.h"
#include "strata/nn/cuda/cuda_primitives.h"

namespace strata {

at::Tensor CudaElementPrimitives::activate(Activation kind, const at::Tensor& x) const {
  const kernels::Element element = element_of(x);
  if (kind == Activation::kSwiglu) {
    std::vector<std::int64_t> shape = x.sizes().vec();
    const std::int64_t width = shape.back() /= 2;
    at::Tensor y = at::empty(shape, x.options());
    cuda::swiglu(element, kernel_input(x), kernel_output(y), y.numel() / width, width, stream(x));
    return y;
  }
  at::Tensor y = at::empty_like(x);
  (kind == Activation::kGelu ? cuda::gelu : cuda::relu)(element, kernel_input(x), kernel_output(y),
                                                        x.numel(), stream(x));
  return y;
}

at::Tensor CudaElementPrimitives::activation_gradient(Activation kind, const at::Tensor& x,
                                                      const at::Tensor& dy,
                                                      at::Tensor* again) const {
  const kernels::Element element = element_of(x);
  switch (kind) {
    case Activation::kGelu: {
      if (again) *again = at::empty_like(x);
      cuda::gelu_backward(element, kernel_input(x), kernel_input(dy), kernel_output(dy),
                          again ? kernel_output(*again) : nullptr, x.numel(), stream(x));
      return dy;
    }
    case Activation::kRelu: {
      if (again) *again = activate(kind, x);
      cuda::relu_backward(element, kernel_input(x), kernel_input(dy), kernel_output(dy), x.numel(),
                          stream(x));
      return dy;
    }
    case Activation::kSwiglu: {
      // dy becomes the output again, which the gate's gradient computes anyway.
      at::Tensor dx = at::empty_like(x);
      const RowShape rows(dy);
      cuda::swiglu_backward(element, kernel_input(x), kernel_input(dy), kernel_output(dx),
                            kernel_output(dy), rows.count, rows.columns, stream(x));
      if (again) *again = dy;
      return dx;
    }
  }
  STRATA_CHECK(false, "nn.activation_gradient");
  return {};
}

at::Tensor CudaElementPrimitives::add(const at::Tensor& a, const at::Tensor& b) const {
  at::Tensor y = at::empty_like(a);
  cuda::add(element_of(a), kernel_input(a), kernel_input(b), kernel_output(y), a.numel(),
            stream(a));
  return y;
}

at::Tensor CudaElementPrimitives::multiply_add(const at::Tensor& a, const at::Tensor& b,
                                               const at::Tensor& c) const {
  at::Tensor y = at::empty_like(a);
  cuda::multiply_add(element_of(a), kernel_input(a), kernel_input(b), kernel_input(c),
                     kernel_output(y), a.numel(), stream(a));
  return y;
}

void CudaElementPrimitives::add_bias(const at::Tensor& x, const at::Tensor& bias) const {
  const RowShape rows(x);
  cuda::add_repeated(element_of(x), kernel_output(x), kernel_input(bias), rows.count, /*length=*/1,
                     rows.columns, stream(x));
}

at::Tensor CudaElementPrimitives::dropout_add(const at::Tensor& residual, const at::Tensor& x,
                                              const MaskOfSamples& mask) const {
  at::Tensor y = at::empty_like(x);
  const std::int64_t samples = x.size(0), per_sample = x.numel() / samples;
  cuda::dropout_add(element_of(x), kernel_input(residual), kernel_input(x), kernel_output(y),
                    {mask.mask, mask.first_sample, mask.part * per_sample}, samples, per_sample,
                    mask.scalars, stream(x));
  return y;
}

}  // namespace strata
