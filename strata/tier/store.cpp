#include "strata/tier/store.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

// A leaf over `bytes` whose gradient accumulates in place in `gradient`.
at::Tensor make_leaf(const at::Tensor& bytes, const at::Tensor& gradient) {
  at::Tensor leaf = bytes.detach().requires_grad_(true);
  leaf.mutable_grad() = gradient;
  return leaf;
}

}  // namespace

Lease::Lease(Medium& medium, LayerBuffers& buffers) : medium_(&medium), buffers_(&buffers) {
  medium_->fetch(buffers);
}

Lease::Lease(Lease&& other) noexcept
    : medium_(other.medium_), buffers_(std::exchange(other.buffers_, nullptr)) {}

Lease::~Lease() {
  if (buffers_) medium_->release(*buffers_);
}

LayerStore::LayerStore(std::unique_ptr<Medium> medium) : medium_(std::move(medium)) {}

void LayerStore::insert(int layer, const LayerLayout& layout, const std::vector<at::Tensor>& shared,
                        int num_slots) {
  LayerBuffers buffers;
  buffers.layout = &layout;
  buffers.weights = at::zeros({layout.own_numel});
  buffers.gradients = at::zeros({layout.total_numel});
  for (int slot = 0; slot < num_slots; ++slot)
    buffers.slots.push_back(at::zeros({layout.own_numel}));
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const Placement& place = layout.placements[i];
    const std::vector<std::int64_t>& shape = layout.specs[i].shape;
    at::Tensor bytes;
    if (!place.borrowed) {
      bytes = buffers.weights.narrow(0, place.offset, place.numel).view(shape);
    } else if (i < shared.size() && shared[i].defined()) {
      bytes = shared[i];
    } else {
      bytes = at::zeros(shape);
    }
    buffers.leaves.push_back(
        make_leaf(bytes, buffers.gradients.narrow(0, place.offset, place.numel).view(shape)));
  }
  entries_.insert_or_assign(layer, std::move(buffers));
}

Lease LayerStore::acquire(int layer) {
  const auto entry = entries_.find(layer);
  STRATA_CHECK(entry != entries_.end(), "tier.acquire");
  return Lease(*medium_, entry->second);
}

std::vector<int> LayerStore::layers() const {
  std::vector<int> layers;
  for (const auto& [layer, buffers] : entries_) layers.push_back(layer);
  return layers;
}

void LayerStore::zero_gradients() {
  for (auto& [layer, buffers] : entries_) buffers.gradients.zero_();
}

}  // namespace strata
