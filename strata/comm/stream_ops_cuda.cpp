// Sums with our own kernel, in rank order; libtorch does the rest on the calling thread's current
// stream, which is the compute stream of its rank (DeviceScope).
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>

#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/cuda_kernels.h"
#include "strata/comm/stream_ops.h"
#include "strata/device/element_of.h"

namespace strata {
namespace {

class CudaOps final : public StreamOps {
 public:
  bool owns(const at::Tensor& x) const override { return x.is_cuda(); }

  at::Tensor empty(const Stream& stream, at::IntArrayRef sizes,
                   at::ScalarType dtype) const override {
    return at::empty(sizes, stream.device().options(dtype));
  }

  // libtorch caches freed memory, so a message costs no driver call.
  at::Tensor host_empty(at::IntArrayRef sizes, at::ScalarType dtype) const override {
    return at::empty(sizes, host_options(dtype).pinned_memory(true));
  }

  void copy(const Stream&, const at::Tensor& to, const at::Tensor& from) const override {
    to.copy_(from, /*non_blocking=*/true);
  }

  void sum_in_order(const Stream& stream, std::span<const at::Tensor> terms,
                    const at::Tensor& out) const override {
    std::vector<at::Tensor> near = readable(stream.device(), terms);
    // After the first pass `out` holds the partial sum.
    for (std::size_t i = cuda::kTermsInAPass; i < near.size(); ++i)
      if (near[i].const_data_ptr() == out.const_data_ptr()) near[i] = near[i].clone();
    if (out.scalar_type() == at::kDouble) {
      std::vector<const double*> addresses;
      for (const at::Tensor& term : near) addresses.push_back(term.const_data_ptr<double>());
      return cuda::sum_in_order(addresses, out.data_ptr<double>(), out.numel(), stream.native());
    }
    std::vector<const void*> addresses;
    for (const at::Tensor& term : near) addresses.push_back(term.const_data_ptr());
    at::Tensor workspace;
    if (near.size() > cuda::kTermsInAPass && out.scalar_type() != at::kFloat)
      workspace = at::empty({out.numel()}, stream.device().options(at::kFloat));
    cuda::sum_in_order(element_of(out), addresses, out.data_ptr(), out.numel(),
                       workspace.defined() ? workspace.data_ptr<float>() : nullptr,
                       stream.native());
  }

  void max_of(const Stream& stream, std::span<const at::Tensor> terms,
              const at::Tensor& out) const override {
    const std::vector<at::Tensor> near = readable(stream.device(), terms, /*copies=*/true);
    at::Tensor most = near[0];
    for (std::size_t i = 1; i < near.size(); ++i) most = at::maximum(most, near[i]);
    out.copy_(most, /*non_blocking=*/true);
  }

 private:
  // Kernels read other devices' memory where the machine lets them.
  static std::vector<at::Tensor> readable(Device device, std::span<const at::Tensor> terms,
                                          bool copies = false) {
    std::vector<at::Tensor> near;
    for (const at::Tensor& term : terms) {
      const int place = term.device().index();
      const bool here =
          place == device.index ||
          (!copies && backend_of(device.kind).enable_peer_access(device.index, place));
      near.push_back(here ? term
                          : at::empty(term.sizes(), device.options(term.scalar_type()))
                                .copy_(term, /*non_blocking=*/true));
    }
    return near;
  }
};

}  // namespace

const StreamOps& cuda_stream_ops() {
  static const CudaOps ops;
  return ops;
}

}  // namespace strata
