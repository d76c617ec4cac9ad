// Libraries compute all products; if the library has no epilogue for the following operation, a
// kernel computes it. A gradient of logits already has the type of the other operands.
#include <ATen/ops/empty_like.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "strata/nn/cuda/arguments.h"
#include "strata/nn/cuda/cuda_primitives.h"

namespace strata {

at::Tensor CudaProductPrimitives::product(const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& bias) const {
  return libraries().products().product(x, weight, bias);
}

at::Tensor CudaProductPrimitives::logits(const at::Tensor& x, const at::Tensor& weight) const {
  return libraries().products().product(x, weight, {});
}

at::Tensor CudaProductPrimitives::as_operand(const at::Tensor& gradient,
                                             at::ScalarType dtype) const {
  STRATA_CHECK(gradient.scalar_type() == dtype, "nn.cuda_as_operand");
  return gradient;
}

void CudaProductPrimitives::input_gradient(at::Tensor& dx, const at::Tensor& dy,
                                           const at::Tensor& weight) const {
  libraries().products().input_gradient(dx, dy, weight);
}

void CudaProductPrimitives::add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                                                const at::Tensor& x) const {
  at::Tensor to = sum;
  libraries().products().add_weight_gradient(to, dy, x);
}

void CudaProductPrimitives::add_column_sums(const at::Tensor& sum, const at::Tensor& x) const {
  const RowShape rows(x);
  const at::Tensor workspace = column_sums_for(x, rows);
  cuda::add_column_sums(element_of(x), kernel_input(x), kernel_output<float>(sum), rows.count,
                        rows.columns, kernel_output<float>(workspace), stream(x));
}

at::Tensor CudaProductPrimitives::product_and_activation(Activation kind, const at::Tensor& x,
                                                         const at::Tensor& weight,
                                                         const at::Tensor& bias,
                                                         at::Tensor& activated) const {
  if (kind == Activation::kGelu && libraries().products().has_epilogues()) {
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    at::Tensor made = at::empty_like(y);
    if (libraries().products().product_and_gelu(y, made, x, weight, bias)) {
      activated = made;
      return y;
    }
  }
  return product(x, weight, bias);
}

at::Tensor CudaProductPrimitives::fused_input_gradient(Activation kind, const at::Tensor& x,
                                                       const at::Tensor& dy,
                                                       const at::Tensor& weight) const {
  if (kind != Activation::kGelu || !libraries().products().has_epilogues()) return {};
  at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  const bool fused =
      libraries().products().input_gradient_of_gelu(dx, dy, weight, x.view(dx.sizes()));
  return fused ? dx : at::Tensor();
}

void CudaProductPrimitives::add_linear_gradients(const at::Tensor& sum, const at::Tensor& bias_sum,
                                                 const at::Tensor& dy, const at::Tensor& x) const {
  if (libraries().products().has_epilogues()) {
    at::Tensor to = sum, columns = empty_on_device_of(dy, {dy.size(1)}, at::kFloat);
    if (libraries().products().add_weight_gradient_and_sum(to, columns, dy, x))
      return cuda::add(kernels::Element::kFp32, kernel_input(bias_sum), kernel_input(columns),
                       kernel_output(bias_sum), bias_sum.numel(), stream(dy));
  }
  ProductPrimitives::add_linear_gradients(sum, bias_sum, dy, x);
}

namespace {

std::optional<ProductLibrary> product_library_of_environment() {
  const char* name = std::getenv("STRATA_CUDA_PRODUCTS");
  if (!name) return std::nullopt;
  const std::string_view library = name;
  if (library != "aten" && library != "cublaslt")
    throw UserError({.operation = "nn.cuda_products",
                     .where = "STRATA_CUDA_PRODUCTS",
                     .what = "no library of that name multiplies",
                     .expected = "aten or cublaslt",
                     .got = name,
                     .fix = "unset STRATA_CUDA_PRODUCTS"});
  return library == "aten" ? ProductLibrary::kAten : ProductLibrary::kCublasLt;
}

}  // namespace

bool multiply_as_environment_says() {
  const std::optional<ProductLibrary> library = product_library_of_environment();
  if (library) multiply_by(*library);
  return library.has_value();
}

void refuse_product_library_with_aten() {
  if (product_library_of_environment() != ProductLibrary::kCublasLt) return;
  throw UserError({.operation = "nn.cuda_products",
                   .where = "STRATA_CUDA_PRODUCTS",
                   .what = "cuBLASLt multiplies for Strata's own primitives alone",
                   .expected = "train.primitives own",
                   .got = "aten, the default on CUDA",
                   .fix = "set train.primitives=own"});
}

}  // namespace strata
