// A kind of device that a build lacks is a source file that refuses (cuda/aten_libraries_no_cuda.cpp).
#include "strata/nn/primitives.h"

#include <ATen/ops/empty.h>

#include "strata/base/errors.h"

namespace strata {
namespace {

thread_local const Primitives* instead_of_hosts = nullptr;

}  // namespace

at::Tensor Primitives::product_ahead_of(Activation, const at::Tensor& x, const at::Tensor& weight,
                                        const at::Tensor& bias, at::Tensor&) const {
  return product(x, weight, bias);
}

at::Tensor Primitives::input_gradient_behind(Activation kind, const at::Tensor& x,
                                             const at::Tensor& dy, const at::Tensor& weight,
                                             at::Tensor* again) const {
  at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  input_gradient(dx, dy, weight);
  return activation_gradient(kind, x, dx, again);
}

void Primitives::add_linear_gradients(const at::Tensor& sum, const at::Tensor& bias_sum,
                                      const at::Tensor& dy, const at::Tensor& x) const {
  add_weight_gradient(sum, dy, x);
  add_column_sums(bias_sum, dy);
}

HostPrimitivesScope::HostPrimitivesScope(const Primitives& primitives) {
  STRATA_CHECK(!instead_of_hosts, "nn.host_primitives_scope");
  instead_of_hosts = &primitives;
}

HostPrimitivesScope::~HostPrimitivesScope() { instead_of_hosts = nullptr; }

const Primitives& primitives(const at::Tensor& x) {
  static const Primitives& host = host_primitives();
  if (!x.is_cpu()) return cuda_primitives();
  return instead_of_hosts ? *instead_of_hosts : host;
}

}  // namespace strata
