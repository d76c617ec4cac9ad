#include "strata/tier/device_slots.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace strata {

DeviceSlots::~DeviceSlots() {
  try {
    drop_free();
  } catch (const std::exception&) {
    // The caller that waited for the copy has got the error.
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
  // The stream may still use the memory for its previous contents.
  return {std::move(bytes), compute_.record()};
}

void DeviceSlots::give_back(at::Tensor bytes, Completion used) {
  if (compute_.queue()) free_.push_back({std::move(bytes), std::move(used)});
}

// The allocator reuses their memory in the order of the compute stream, so the stream waits first.
void DeviceSlots::drop_free() {
  for (const Slot& slot : free_) compute_.wait(slot.free);
  free_.clear();
}

}  // namespace strata
