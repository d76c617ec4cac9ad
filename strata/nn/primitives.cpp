// A kind of device that a build lacks is a source file that refuses (cuda/aten_libraries_no_cuda.cpp).
#include "strata/nn/primitives.h"

#include "strata/base/errors.h"

namespace strata {
namespace {

thread_local const Primitives* instead_of_hosts = nullptr;

}  // namespace

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
