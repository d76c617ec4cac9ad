// One device however many sockets and cores: threads are the business of each rank's pool.
#include "strata/device/device.h"

namespace strata {
namespace {

class CpuBackend final : public DeviceBackend {
 public:
  int count() const override { return 1; }
  std::shared_ptr<StreamQueue> make_queue(int) const override { return nullptr; }
};

}  // namespace

const DeviceBackend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace strata
