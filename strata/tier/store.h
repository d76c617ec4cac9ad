/// Holds the bytes of layers, one flat buffer each, and leases them for as long as an action needs
/// them. Where weights come from is the medium's business.
///
/// Threads  a store belongs to one rank's thread.
/// Errors   InternalError: a layer that isn't in the store; a release under a lease.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/base/flat_range.h"
#include "strata/nn/layout.h"
#include "strata/tier/flat_buffer.h"
#include "strata/tier/medium.h"

namespace strata {

/// What a rank keeps of a layer that replicas share. By default everything.
struct Residence {
  FlatRange shard;              ///< of the layer's own elements: its optimizer states live here
  bool whole_weights = true;    ///< false: beyond the shard only from fetch to release
  bool whole_gradients = true;  ///< false: beyond the shard only from a backward to its reduction
  bool gradients = true;        ///< false: weights alone, for inference
  at::ScalarType dtype = at::kFloat;  ///< of the weights that layers compute with
};

/// All bytes that one layer has on this rank.
struct LayerBuffers {
  int layer = 0;
  const LayerLayout* layout = nullptr;
  Residence residence;
  FlatBuffer weights;              ///< [own_numel]
  FlatBuffer gradients;            ///< [total_numel]
  at::Tensor master;               ///< [shard] fp32: what the optimizer updates; the weight shard
                                   ///< itself in fp32
  at::Tensor weight_shard;         ///< [shard], a view of the weights if they stay whole
  at::Tensor gradient_shard;       ///< likewise
  std::vector<at::Tensor> slots;   ///< optimizer states, flat, [shard] each
  std::vector<at::Tensor> leaves;  ///< per weight: autograd leaf, gradient preset to its view;
                                   ///< without gradients a plain tensor
  int leases = 0;

  FlatRange own() const { return {0, layout->own_numel}; }
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
  LayerBuffers* buffers_;
};

class LayerStore {
 public:
  explicit LayerStore(std::unique_ptr<Medium> medium);

  /// Makes the (zeroed) buffers of a layer. `shared[i]` is defined where weight i is tied and its
  /// owner's bytes live on this rank too: then the use is a view of them. Otherwise a borrowed
  /// weight gets a replica of its own. `num_slots`: optimizer states.
  void insert(int layer, const LayerLayout& layout, const std::vector<at::Tensor>& shared,
              int num_slots, const Residence& residence);
  void insert(int layer, const LayerLayout& layout, const std::vector<at::Tensor>& shared,
              int num_slots);  ///< everything stays

  void prefetch(int layer);
  Lease acquire(int layer);  ///< fetches what isn't there
  void release(int layer);

  /// Without a lease: whatever is here.
  LayerBuffers& buffers(int layer);
  bool contains(int layer) const { return entries_.contains(layer); }
  std::vector<int> layers() const;  ///< ascending

  /// Sees to it that backward finds a gradient buffer; a new one is zero.
  void open_gradients(int layer);
  void zero_gradients();

 private:
  std::unique_ptr<Medium> medium_;
  std::map<int, LayerBuffers> entries_;
};

}  // namespace strata
