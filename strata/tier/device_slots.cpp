#include "strata/tier/device_slots.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace strata {

DeviceSlots::~DeviceSlots() {
  try {
    drop_free();
  } catch (const std::exception&) {
    // Whoever waited for a copy knows.
  }
}

DeviceSlots::Slot DeviceSlots::take(std::int64_t numel, at::ScalarType dtype) {
  const auto found = std::ranges::find_if(free_, [&](const Slot& slot) {
    return slot.bytes.numel() == numel && slot.bytes.scalar_type() == dtype;
  });
  if (found != free_.end()) {
    Slot slot = std::move(*found);
    free_.erase(found);
    return slot;
  }
  drop_free();
  at::Tensor bytes = at::empty({numel}, compute_.device().options(dtype));
  // Whoever had the memory before may still use it in that stream.
  return {std::move(bytes), compute_.record()};
}

void DeviceSlots::give_back(at::Tensor bytes, Completion used) {
  if (compute_.queue()) free_.push_back({std::move(bytes), std::move(used)});
}

// The allocator gives them out again in the order of the compute stream.
void DeviceSlots::drop_free() {
  for (const Slot& slot : free_) compute_.wait(slot.free);
  free_.clear();
}

}  // namespace strata
