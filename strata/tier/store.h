/// Holds the bytes of layers, one flat buffer each, and leases them for as long as an action needs
/// them. Where they come from is the medium's business; for now they live on the device.
///
/// Threads  a store belongs to one rank's thread.
/// Errors   InternalError: a lease of a layer that isn't in the store.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/model/layout.h"
#include "strata/tier/medium.h"

namespace strata {

/// All bytes that one layer has on this rank.
struct LayerBuffers {
  const LayerLayout* layout = nullptr;
  at::Tensor weights;              ///< flat, [own_numel]
  at::Tensor gradients;            ///< flat, [total_numel]
  std::vector<at::Tensor> slots;   ///< optimizer states, flat, [own_numel] each
  std::vector<at::Tensor> leaves;  ///< per weight: autograd leaf, gradient preset to its view
};

/// Pins one layer on the device: while it lives, the bytes cannot leave.
class [[nodiscard]] Lease {
 public:
  Lease(Medium& medium, LayerBuffers& buffers);
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&&) = delete;
  ~Lease();

  LayerBuffers& buffers() const { return *buffers_; }
  std::span<const at::Tensor> weights() const { return buffers_->leaves; }

 private:
  Medium* medium_;
  LayerBuffers* buffers_;
};

class LayerStore {
 public:
  explicit LayerStore(std::unique_ptr<Medium> medium);

  /// Makes the (zeroed) buffers of a layer. `shared[i]` is defined where weight i is tied and its
  /// owner's bytes live on this rank too: then the use is a view of them. Otherwise a borrowed
  /// weight gets a replica of its own. `num_slots`: optimizer states.
  void insert(int layer, const LayerLayout& layout, const std::vector<at::Tensor>& shared,
              int num_slots);

  Lease acquire(int layer);
  bool contains(int layer) const { return entries_.contains(layer); }
  std::vector<int> layers() const;  ///< ascending
  void zero_gradients();

 private:
  std::unique_ptr<Medium> medium_;
  std::map<int, LayerBuffers> entries_;
};

}  // namespace strata
