#include "strata/tier/staging_ring.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <memory>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/pinned.h"
#include "strata/disk/aligned_buffer.h"

namespace strata {

at::Tensor aligned_bytes(std::int64_t bytes, MemoryAccount* account) {
  if (account) account->charge(bytes);
  auto buffer = std::make_shared<AlignedBuffer>(static_cast<std::size_t>(bytes));
  void* const begin = buffer->bytes().data();
  return at::from_blob(
      begin, {bytes},
      [buffer, bytes, account](void*) mutable {
        buffer.reset();
        if (account) account->credit(bytes);
      },
      host_options(at::kByte));
}

// Page-locked memory begins at a page, too.
StagingRing::StagingRing(int buffers, std::int64_t bytes, MemoryAccount* account, Device device) {
  for (int i = 0; i < buffers; ++i)
    buffers_.push_back({.bytes = device.kind == DeviceKind::kCpu
                                     ? aligned_bytes(bytes, account)
                                     : pinned_bytes(bytes, device, account)});
}

StagingBuffer& StagingRing::take(int layer) {
  if (StagingBuffer* const former = of(layer)) {
    STRATA_CHECK_EQ(former->pins, 0, "tier.staging_ring");
    former->layer = -1;
  }
  StagingBuffer* next = nullptr;
  for (StagingBuffer& buffer : buffers_)
    if (buffer.pins == 0 && (!next || buffer.turn < next->turn)) next = &buffer;
  if (!next) {
    throw InternalError(
        {.operation = "tier.staging_ring",
         .where = "layer " + std::to_string(layer),
         .what = "more layers are pinned at once than there are staging buffers",
         .expected = "pins of at most " + std::to_string(buffers_.size()) + " layers",
         .got = "",
         .fix = ""});
  }
  next->layer = layer;
  next->complete.clear();
  next->turn = ++turn_;
  return *next;
}

StagingBuffer* StagingRing::of(int layer) {
  const auto found = std::ranges::find(buffers_, layer, &StagingBuffer::layer);
  return found == buffers_.end() ? nullptr : &*found;
}

}  // namespace strata
