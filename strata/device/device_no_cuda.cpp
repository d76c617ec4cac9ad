// Stands for the CUDA backend in a build that has none: a missing kind of device is a source file
// that refuses, not an #ifdef.
#include "strata/base/errors.h"
#include "strata/device/device.h"

namespace strata {
namespace {

class NoCudaBackend final : public DeviceBackend {
 public:
  int count() const override { return 0; }
  void require(int) const override { refuse(); }
  std::shared_ptr<StreamQueue> make_queue(int) const override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw UserError({.operation = "device.cuda",
                     .what = "this build of Strata computes on CPUs alone",
                     .expected = "cpu",
                     .got = "cuda",
                     .fix = "set mesh.device=cpu"});
  }
};

}  // namespace

const DeviceBackend& cuda_backend() {
  static const NoCudaBackend backend;
  return backend;
}

}  // namespace strata
