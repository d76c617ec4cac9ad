// Replaces the CUDA backend in a build without CUDA: for a missing kind of device a source file
// refuses instead of an #ifdef.
#include <utility>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/device/no_cuda.h"

namespace strata {
namespace {

class NoCudaBackend final : public DeviceBackend {
 public:
  int count() const override { return 0; }
  std::string why_none() const override { return "this build has no CUDA"; }
  void require(int) const override { refuse(); }
  DeviceFacts facts(int) const override { refuse(); }
  std::int64_t free_bytes(int) const override { refuse(); }
  std::shared_ptr<StreamQueue> make_queue(int) const override { refuse(); }
  std::shared_ptr<StreamQueue> compute_queue(int) const override { refuse(); }
  std::unique_ptr<DeviceBinding> bind(int) const override { refuse(); }
  void register_host_memory(void*, std::size_t) const override { refuse(); }
  void unregister_host_memory(void*) const override { refuse(); }

 private:
  [[noreturn]] static void refuse() { refuse_cuda("device.cuda"); }
};

}  // namespace

void refuse_cuda(std::string operation) {
  throw UserError({.operation = std::move(operation),
                   .what = "this build has no CUDA",
                   .expected = "cpu",
                   .got = "cuda",
                   .fix = "set mesh.device=cpu, or build with a CUDA libtorch (docs/cuda.md)"});
}

const DeviceBackend& cuda_backend() {
  static const NoCudaBackend backend;
  return backend;
}

}  // namespace strata
