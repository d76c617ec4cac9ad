#include "strata/tier/slab_ring.h"

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

// Pinned memory begins at a page, too.
SlabRing::SlabRing(int slabs, std::int64_t bytes, MemoryAccount* account, Device device) {
  for (int i = 0; i < slabs; ++i)
    slabs_.push_back({.bytes = device.kind == DeviceKind::kCpu
                                   ? aligned_bytes(bytes, account)
                                   : pinned_bytes(bytes, device, account)});
}

Slab& SlabRing::take(int layer) {
  if (Slab* const former = of(layer)) {
    STRATA_CHECK_EQ(former->leases, 0, "tier.slab_ring");
    former->layer = -1;
  }
  Slab* next = nullptr;
  for (Slab& slab : slabs_)
    if (slab.leases == 0 && (!next || slab.turn < next->turn)) next = &slab;
  if (!next) {
    throw InternalError({.operation = "tier.slab_ring",
                         .where = "layer " + std::to_string(layer),
                         .what = "more layers are leased at once than the disk's staging holds",
                         .expected = "leases of at most " + std::to_string(slabs_.size()),
                         .got = "",
                         .fix = ""});
  }
  next->layer = layer;
  next->complete.clear();
  next->turn = ++turn_;
  return *next;
}

Slab* SlabRing::of(int layer) {
  const auto found = std::ranges::find(slabs_, layer, &Slab::layer);
  return found == slabs_.end() ? nullptr : &*found;
}

}  // namespace strata
