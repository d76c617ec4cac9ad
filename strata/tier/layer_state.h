/// Holds all bytes that one layer has on a rank, as media move them.
///
/// Every buffer is one storage object for life: bytes come and go under it, its views (autograd
/// leaves, gradients, saved tensors) stay valid. Nothing but the store, its leases and its media
/// touches one.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "strata/base/flat_range.h"
#include "strata/nn/layout.h"
#include "strata/tier/flat_buffer.h"
#include "strata/tier/medium.h"

namespace strata {

/// Which part of a layer's state this rank keeps. By default weights, gradients and no states of an
/// optimizer, all whole.
struct ShardPlacement {
  FlatRange shard = {};         ///< of the layer's own elements: its optimizer states live here
  bool whole_weights = true;    ///< false: beyond the shard only from fetch to release
  bool whole_gradients = true;  ///< false: beyond the shard only from a backward to its reduction
  at::ScalarType dtype = at::kFloat;  ///< of the weights that layers compute with
  int optimizer_slots = 0;
  bool trains = true;  ///< false: weights alone, for inference
};

struct LayerState {
  int layer = 0;
  const LayerLayout* layout = nullptr;
  ShardPlacement placement;
  FlatBuffer weights;              ///< [own_numel]
  FlatBuffer gradients;            ///< [total_numel]
  FlatBuffer weight_shard;         ///< [shard], unless the weights stay whole
  FlatBuffer gradient_shard;       ///< [shard], unless the gradients stay whole
  FlatBuffer master;               ///< [shard] fp32, beside 16-bit weights
  std::vector<FlatBuffer> slots;   ///< [shard] fp32 each
  std::vector<at::Tensor> leaves;  ///< per weight: autograd leaf, gradient preset to its view

  /// The buffers in which this rank keeps a kind between its uses; none for whole weights that are
  /// made of peers' shards.
  std::vector<FlatBuffer*> kept(StateKind kind);

  FlatRange own() const { return {0, layout->own_numel}; }
};

}  // namespace strata
