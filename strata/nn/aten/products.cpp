// Products of 16-bit operands are rounded to 16 bit, like ATen's; sums of gradients are not.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "strata/base/errors.h"
#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/aten/aten_scope.h"

namespace strata {
namespace {

// Whether the device has products of 16-bit operands whose results are fp32.
bool multiplies_to_float(const at::Tensor& x) {
  static const c10::OperatorHandle product =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "dtype");
  return product.hasKernelForDispatchKey(
      c10::computeDispatchKey(x.scalar_type(), x.layout(), x.device()));
}

class AtenProductPrimitives final : public ProductPrimitives {
 public:
  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    const AtenScope scope;
    bias.defined() ? at::addmm_out(y, bias, x, weight.t()) : at::mm_out(y, x, weight.t());
    return y;
  }

  at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const override {
    return product(x, weight, {});
  }

  at::Tensor as_operand(const at::Tensor& gradient, at::ScalarType dtype) const override {
    STRATA_CHECK(gradient.scalar_type() == dtype, "nn.aten_as_operand");
    return gradient;
  }

  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override {
    const AtenScope scope;
    at::mm_out(dx, dy, weight);
  }

  void add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override {
    const AtenScope scope;
    if (x.scalar_type() != at::kFloat && multiplies_to_float(x)) {
      sum.add_(at::mm(dy.t(), x, at::kFloat));
    } else {
      sum.addmm_(as_float(dy).t(), as_float(x));
    }
  }

  void add_column_sums(const at::Tensor& sum, const at::Tensor& x) const override {
    const AtenScope scope;
    sum.add_(x.sum({0}, /*keepdim=*/false, at::kFloat));
  }
};

}  // namespace

const ProductPrimitives& aten_products() {
  static const AtenProductPrimitives products;
  return products;
}

}  // namespace strata
