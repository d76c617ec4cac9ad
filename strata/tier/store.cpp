#include "strata/tier/store.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

// A leaf over `bytes` whose gradient accumulates in place in its part of `gradients`.
at::Tensor make_leaf(const at::Tensor& bytes, const FlatBuffer& gradients,
                     const WeightPlacement& place) {
  at::Tensor leaf = bytes.detach().requires_grad_(true);
  leaf.mutable_grad() = gradients.tensor().narrow(0, place.offset, place.numel).view(place.shape);
  return leaf;
}

// The shard of a flat buffer: its part if the whole stays here, else bytes of its own.
at::Tensor make_shard(FlatBuffer& flat, bool whole, FlatRange shard, std::int64_t numel) {
  const at::ScalarType dtype = flat.tensor().scalar_type();
  if (!whole) return at::zeros({shard.size()}, dtype);
  flat.install(at::zeros({numel}, dtype));
  return flat.tensor().narrow(0, shard.begin, shard.size());
}

}  // namespace

Lease::Lease(Medium& medium, LayerBuffers& buffers) : buffers_(&buffers) {
  medium.fetch(buffers);
  ++buffers.leases;
}

Lease::Lease(Lease&& other) noexcept : buffers_(std::exchange(other.buffers_, nullptr)) {}

Lease::~Lease() {
  if (buffers_) --buffers_->leases;
}

LayerStore::LayerStore(std::unique_ptr<Medium> medium) : medium_(std::move(medium)) {}

void LayerStore::insert(int layer, const LayerLayout& layout, const std::vector<at::Tensor>& shared,
                        int num_slots) {
  insert(layer, layout, shared, num_slots, {.shard = {0, layout.own_numel}});
}

void LayerStore::insert(int layer, const LayerLayout& layout, const std::vector<at::Tensor>& shared,
                        int num_slots, const Residence& residence) {
  LayerBuffers buffers{.layer = layer, .layout = &layout, .residence = residence};
  const FlatRange shard = residence.shard;
  buffers.weights = FlatBuffer(layout.own_numel, residence.dtype);
  buffers.weight_shard =
      make_shard(buffers.weights, residence.whole_weights, shard, layout.own_numel);
  if (residence.gradients) {
    buffers.gradients = FlatBuffer(layout.total_numel);
    buffers.gradient_shard =
        make_shard(buffers.gradients, residence.whole_gradients, shard, layout.total_numel);
  }
  buffers.master =
      residence.dtype == at::kFloat ? buffers.weight_shard : at::zeros({shard.size()}, at::kFloat);
  for (int slot = 0; slot < num_slots; ++slot) buffers.slots.push_back(at::zeros({shard.size()}));
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    at::Tensor bytes;
    if (!place.borrowed) {
      bytes = buffers.weights.tensor().narrow(0, place.offset, place.numel).view(place.shape);
    } else if (i < shared.size() && shared[i].defined()) {
      bytes = shared[i];
    } else {
      bytes = at::zeros(place.shape, residence.dtype);
    }
    buffers.leaves.push_back(residence.gradients ? make_leaf(bytes, buffers.gradients, place)
                                                 : bytes);
  }
  entries_.insert_or_assign(layer, std::move(buffers));
}

LayerBuffers& LayerStore::buffers(int layer) {
  const auto entry = entries_.find(layer);
  STRATA_CHECK(entry != entries_.end(), "tier.buffers");
  return entry->second;
}

void LayerStore::prefetch(int layer) { medium_->prefetch(buffers(layer)); }

Lease LayerStore::acquire(int layer) { return Lease(*medium_, buffers(layer)); }

void LayerStore::release(int layer) {
  STRATA_CHECK_EQ(buffers(layer).leases, 0, "tier.release");
  medium_->release(buffers(layer));
}

std::vector<int> LayerStore::layers() const {
  std::vector<int> layers;
  for (const auto& [layer, buffers] : entries_) layers.push_back(layer);
  return layers;
}

void LayerStore::open_gradients(int layer) {
  FlatBuffer& gradients = buffers(layer).gradients;
  if (!gradients.present()) gradients.install(at::zeros({gradients.tensor().numel()}));
}

void LayerStore::zero_gradients() {
  for (auto& [layer, buffers] : entries_) {
    if (buffers.gradients.present()) buffers.gradients.tensor().zero_();
    if (!buffers.residence.whole_gradients) buffers.gradient_shard.zero_();
  }
}

}  // namespace strata
