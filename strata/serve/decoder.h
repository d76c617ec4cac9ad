/// Continues several texts token by token, one object per rank, with weights and a cache of keys
/// and values.
///
/// Build it in every rank's thread, fill weights() from a checkpoint, and call the same methods in
/// the same order. A token costs one pass of one row, independent of earlier tokens, plus reading
/// the keys and values of its text. Texts of different lengths share a pass, which reads the
/// weights once.
///
/// Shapes   logits [B, V] fp32 of the B texts of a pass.
/// Threads  one rank's thread; forward() is collective.
/// Errors   UserError: more stages than layers. What layers, peers and budgets throw.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/comm/group.h"
#include "strata/nn/graph/sequential.h"
#include "strata/pipeline/stage_machine.h"
#include "strata/serve/key_value_cache.h"
#include "strata/tier/store.h"

namespace strata {

class Decoder {
 public:
  /// The capacity of the cache.
  struct Room {
    int sequences = 1;           ///< number of texts at once
    std::int64_t positions = 1;  ///< of the longest text
  };

  /// `model`: made for mesh.tp ranks with the logits as its output; must outlive the decoder. The
  /// layers are cut evenly over mesh.pp stages; mesh.dp is 1.
  Decoder(const Sequential& model, const Mesh& mesh, const Room& room, const Group& world);

  /// The weights to fill. A rank with a use of a tied weight, but not its owner, has a copy.
  std::vector<NamedState> weights();

  /// Appends tokens to sequences. Returns the logits after the last token of each, in the order of
  /// `batch`, on the ranks that hold the last layer; undefined elsewhere.
  at::Tensor forward(std::span<const NewTokens> batch);

  std::int64_t length(int sequence) const { return cache_.length(sequence); }  ///< tokens so far
  std::int64_t positions() const { return cache_.positions(); }  ///< capacity of a text
  void clear(int sequence) { cache_.clear(sequence); }           ///< starts another text

  /// Whether this rank makes decisions for the others: it has the logits and is the first of its
  /// slices.
  bool decides() const;

 private:
  const Sequential& model_;
  MeshGroups groups_;
  StepPlan plan_;
  LayerStore store_;
  KeyValueCache cache_;
  StageMachine machine_;
  std::int32_t passes_ = 0;
};

}  // namespace strata
