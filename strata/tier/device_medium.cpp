#include "strata/tier/medium.h"

namespace strata {
namespace {

class DeviceMedium final : public Medium {
 public:
  void prefetch(LayerBuffers&) override {}
  void fetch(LayerBuffers&) override {}
  void release(LayerBuffers&) override {}
};

}  // namespace

std::unique_ptr<Medium> device_medium() { return std::make_unique<DeviceMedium>(); }

}  // namespace strata
