/// Runs a model token by token, one object a rank: weights alone and a cache of keys and values.
///
/// Build it in every rank's thread, fill weights() from a checkpoint, call the same methods in the
/// same order. A token costs one pass of one row, whatever came before it, beside the reading of
/// the keys and values so far.
///
/// Shapes   one text; logits [1, V] fp32.
/// Threads  one rank's thread; forward() is collective.
/// Errors   UserError: more stages than layers. What layers, peers and budgets throw.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/comm/group.h"
#include "strata/device/device.h"
#include "strata/nn/sequential.h"
#include "strata/schedule/execute.h"
#include "strata/tier/store.h"

namespace strata {

/// What the layers of one rank keep of the tokens that were decoded: keys and values.
/// Units    positions: tokens of a text, from its first one.
/// Cost     all bytes at once, when it is made: 2 x positions x width of the key heads a layer.
class KeyValueCache {
 public:
  /// For `layers` of the model and one text of at most `positions` tokens.
  KeyValueCache(const Sequential& model, const std::vector<int>& layers, std::int64_t positions,
                Device device);

  const LayerCache& layer(int layer) const { return layers_.at(layer); }

  std::int64_t positions() const { return positions_; }
  std::int64_t length() const { return length_; }  ///< tokens so far
  void append(std::int64_t tokens);                ///< all layers have kept so many more
  void clear() { append(-length_); }

 private:
  std::map<int, LayerCache> layers_;
  std::int64_t positions_ = 0;
  std::int64_t length_ = 0;
};

class Decoder {
 public:
  /// `model`: made for mesh.tp ranks with the logits as its output; must outlive the decoder. The
  /// layers are cut evenly over mesh.pp stages; mesh.dp is 1. `positions`: of the longest text.
  Decoder(const Sequential& model, const Mesh& mesh, std::int64_t positions, const Group& world);
  ~Decoder();

  /// For loading. Ties: a rank that holds a use and not the owner has a copy of its own.
  std::vector<NamedState> weights();

  /// Appends the tokens to the text. The logits behind the last one, on the ranks that hold the
  /// last layer; undefined elsewhere.
  at::Tensor forward(std::span<const std::int64_t> tokens);

  std::int64_t length() const { return cache_.length(); }        ///< of the text so far
  std::int64_t positions() const { return cache_.positions(); }  ///< that it can have
  void clear() { cache_.clear(); }                               ///< begins another text

  /// Whether this rank speaks for the others: it has the logits and is the first of its slices.
  bool decides() const;

 private:
  class Stage;

  const Sequential& model_;
  MeshGroups groups_;
  Partition partition_;
  LayerStore store_;
  KeyValueCache cache_;
  Program program_;
  std::unique_ptr<Stage> stage_;
};

}  // namespace strata
