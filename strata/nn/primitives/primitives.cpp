// If a build lacks a kind of device, another source file refuses it
// (cuda/aten_libraries_no_cuda.cpp).
#include "strata/nn/primitives/primitives.h"

#include "strata/base/errors.h"
#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/primitives/primitive_choice.h"

namespace strata {
namespace {

struct NamedPrimitives {
  DeviceKind kind;
  PrimitivesChoice choice;
  const Primitives& (*find)();
};

constexpr NamedPrimitives kPrimitives[] = {
    {DeviceKind::kCpu, PrimitivesChoice::kOwn, host_primitives},
    {DeviceKind::kCpu, PrimitivesChoice::kAten, aten_primitives},
    {DeviceKind::kCuda, PrimitivesChoice::kOwn, cuda_primitives},
    {DeviceKind::kCuda, PrimitivesChoice::kAten, cuda_aten_primitives},
};

thread_local const Primitives* instead_of_hosts = nullptr;

}  // namespace

HostPrimitivesScope::HostPrimitivesScope(const Primitives& primitives) {
  STRATA_CHECK(!instead_of_hosts, "nn.host_primitives_scope");
  instead_of_hosts = &primitives;
}

HostPrimitivesScope::~HostPrimitivesScope() { instead_of_hosts = nullptr; }

const Primitives& primitives(const at::Tensor& x) {
  const DeviceKind kind = x.is_cpu() ? DeviceKind::kCpu : DeviceKind::kCuda;
  if (kind == DeviceKind::kCpu && instead_of_hosts) return *instead_of_hosts;
  const PrimitivesChoice choice = chosen_primitives(kind);
  for (const NamedPrimitives& named : kPrimitives)
    if (named.kind == kind && named.choice == choice) return named.find();
  STRATA_CHECK(false, "nn.primitives");
  return host_primitives();
}

}  // namespace strata
