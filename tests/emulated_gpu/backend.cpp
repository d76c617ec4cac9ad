// Implements Strata's device interface on an emulated GPU: devices and the account of their memory.
#include <memory>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/charge_map.h"
#include "strata/device/cuda_memory.h"
#include "strata/device/device.h"
#include "tests/emulated_gpu/memory.h"
#include "tests/emulated_gpu/work.h"

namespace strata {
namespace {

class Binding final : public DeviceBinding {
 public:
  explicit Binding(int index) { emulated::set_device(index); }
  ~Binding() override { emulated::set_device(previous_); }

 private:
  int previous_ = emulated::current_device();
};

class EmulatedBackend final : public DeviceBackend {
 public:
  int count() const override { return emulated::device_count(); }
  std::string why_none() const override { return count() > 0 ? "" : "no emulated device"; }
  DeviceFacts facts(int index) const override {
    require(index);
    DeviceFacts facts{.name = "Emulated GPU",
                      .bytes = emulated::kDeviceBytes,
                      .multiprocessors = 1,
                      .capability = "0.0"};
    for (int peer = 0; peer < count(); ++peer)
      if (peer != index) facts.peers.push_back(peer);
    return facts;
  }
  std::int64_t free_bytes(int index) const override {
    require(index);
    return emulated::kDeviceBytes - emulated::allocated_bytes(index);
  }
  std::shared_ptr<StreamQueue> make_queue(int index) const override {
    require(index);
    return emulated::make_queue();
  }
  std::shared_ptr<StreamQueue> compute_queue(int index) const override {
    require(index);
    return emulated::compute_queue(index);
  }
  std::unique_ptr<DeviceBinding> bind(int index) const override {
    require(index);
    return std::make_unique<Binding>(index);
  }
  bool enable_peer_access(int, int) const override { return true; }
  void register_host_memory(void* begin, std::size_t bytes) const override {
    emulated::lock_host_memory(begin, bytes);
  }
  void unregister_host_memory(void* begin) const override { emulated::unlock_host_memory(begin); }
};

}  // namespace

const DeviceBackend& cuda_backend() {
  static const EmulatedBackend backend;
  return backend;
}

void trace_cuda_memory(ChargeMap& charges) {
  emulated::set_trace({.allocated =
                           [&charges](const void* address, std::int64_t bytes) {
                             charges.allocated(address, bytes,
                                               current_memory_account(DeviceKind::kCuda));
                           },
                       .freed = [&charges](const void* address) { charges.freed(address); }});
}

DeviceMemory cuda_memory(int index) {
  const std::int64_t bytes = emulated::allocated_bytes(index);
  return {.requested_bytes = bytes,
          .allocated_bytes = bytes,
          .reserved_bytes = bytes,
          .total_bytes = emulated::kDeviceBytes};
}

void limit_cuda_memory(int index, std::int64_t bytes) { emulated::limit_bytes(index, bytes); }

}  // namespace strata
