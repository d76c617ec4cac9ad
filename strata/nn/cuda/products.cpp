// All products are the libraries'. A gradient of logits has the type of the other operands already.
#include "strata/nn/cuda/arguments.h"
#include "strata/nn/cuda/cuda_primitives.h"

namespace strata {

at::Tensor CudaPrimitives::product(const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& bias) const {
  return libraries_.product(x, weight, bias);
}

at::Tensor CudaPrimitives::logits(const at::Tensor& x, const at::Tensor& weight) const {
  return libraries_.product(x, weight, {});
}

at::Tensor CudaPrimitives::as_operand(const at::Tensor& gradient, at::ScalarType dtype) const {
  STRATA_CHECK(gradient.scalar_type() == dtype, "nn.cuda_as_operand");
  return gradient;
}

void CudaPrimitives::input_gradient(at::Tensor& dx, const at::Tensor& dy,
                                    const at::Tensor& weight) const {
  libraries_.input_gradient(dx, dy, weight);
}

void CudaPrimitives::add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                                         const at::Tensor& x) const {
  at::Tensor to = sum;
  libraries_.add_weight_gradient(to, dy, x);
}

void CudaPrimitives::add_column_sums(const at::Tensor& sum, const at::Tensor& x) const {
  const RowShape rows(x);
  const at::Tensor workspace = column_sums_beside(x, rows);
  cuda::add_column_sums(element_of(x), kernel_input(x), kernel_output<float>(sum), rows.count,
                        rows.columns, kernel_output<float>(workspace), stream(x));
}

}  // namespace strata
