// The host joins and splits weights; those of a device are copied first.
#include "strata/optim/master_weights.h"

#include <ATen/ops/empty.h>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/optim/update_kernels.h"

namespace strata {
namespace {

kernels::SplitWeights halves_of(const MasterWeights& master) {
  const at::Tensor &high = master.weights, &low = master.remainder;
  STRATA_CHECK(high.scalar_type() == at::kBFloat16 && low.scalar_type() == at::kShort,
               "optim.master_weights");
  STRATA_CHECK(high.is_cpu() && high.is_contiguous() && low.is_cpu() && low.is_contiguous(),
               "optim.master_weights");
  STRATA_CHECK_EQ(high.numel(), low.numel(), "optim.master_weights");
  return {static_cast<std::uint16_t*>(high.data_ptr()),
          static_cast<std::uint16_t*>(low.data_ptr())};
}

}  // namespace

MasterWeights MasterWeights::narrow(std::int64_t begin, std::int64_t numel) const {
  return {weights.narrow(0, begin, numel),
          split() ? remainder.narrow(0, begin, numel) : at::Tensor()};
}

// Split bf16 weights lack 16 bits; fp16 weights are copies of fp32 ones.
std::int64_t master_bytes(at::ScalarType precision) {
  return precision == at::kFloat ? 0 : precision == at::kBFloat16 ? 2 : 4;
}

at::Tensor MasterWeights::whole() const {
  if (weights.defined() && !weights.is_cpu())
    return MasterWeights{weights.cpu(), split() ? remainder.cpu() : at::Tensor()}.whole();
  if (!split()) return weights;
  at::Tensor fp32 = at::empty({numel()}, weights.options().dtype(at::kFloat));
  kernels::join_weights(halves_of(*this), fp32.data_ptr<float>(), numel());
  return fp32;
}

void MasterWeights::assign(const at::Tensor& fp32) const {
  if (!split()) {
    if (!fp32.is_same(weights)) weights.copy_(fp32);
    return;
  }
  if (!weights.is_cpu()) {
    const MasterWeights host{at::empty(weights.sizes(), host_options(weights.scalar_type())),
                             at::empty(remainder.sizes(), host_options(remainder.scalar_type()))};
    host.assign(fp32);
    weights.copy_(host.weights);
    remainder.copy_(host.remainder);
    return;
  }
  STRATA_CHECK(fp32.is_cpu() && fp32.is_contiguous(), "optim.master_weights");
  STRATA_CHECK_EQ(fp32.numel(), numel(), "optim.master_weights");
  kernels::split_weights(fp32.const_data_ptr<float>(), halves_of(*this), numel());
}

}  // namespace strata
