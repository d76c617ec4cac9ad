/// Describes how layers are connected and on which stage each one runs, for schedules.
#pragma once

#include <string>
#include <vector>

#include "strata/layout/layer_range.h"
#include "strata/layout/layer_set.h"

namespace strata {

/// A tensor that one layer produces and other layers read. Inputs of the mini-batch (tokens,
/// targets) are not values: every rank reads them from its own loader.
struct Value {
  std::string name;
  int producer = -1;           ///< layer
  std::vector<int> consumers;  ///< layers, ascending, each > producer
  bool differentiable = true;  ///< false: no gradient flows back (known statically)
};

/// A weight that several layers use. The owner holds and updates it; every use has a gradient
/// buffer of its own, and these are summed once at the end of the step in ascending layer order.
struct Tie {
  std::string name;
  int owner = -1;          ///< layer
  std::vector<int> users;  ///< layers, ascending, without the owner
};

struct Dataflow {
  int num_layers = 0;
  std::vector<Value> values;
  std::vector<Tie> ties;
  /// The layer that reads the embeddings of the batch and computes their gradients; -1: no layer
  /// does.
  int rows_layer = -1;
};

/// Errors  InternalError from stage_of(): no stage has the layer.
/// Assigns layers to stages: stage s holds layers [bounds[s], bounds[s+1]).
struct Partition {
  std::vector<int> bounds;  ///< size = stages + 1, strictly ascending, from 0 to num_layers
  int num_stages() const { return static_cast<int>(bounds.size()) - 1; }
  LayerRange layers(int stage) const { return {bounds[stage], bounds[stage + 1]}; }
  int stage_of(int layer) const;
  friend bool operator==(const Partition&, const Partition&) = default;
};

/// Lists, for every layer, its stage, its rank and the values that it reads and produces.
///
/// Errors  InternalError if the partition, the ranks of its stages and the dataflow do not fit
///         together.
struct LayerPlacement {
  LayerPlacement(const Dataflow& dataflow, const Partition& partition,
                 const std::vector<int>& rank_of_stage);

  std::vector<int> stage;                 ///< per layer
  std::vector<int> rank;                  ///< per layer
  std::vector<std::vector<int>> inputs;   ///< per layer: values, ascending
  std::vector<std::vector<int>> outputs;  ///< per layer: values, ascending
};

/// Layers that own or use a tied weight.
LayerSet tied_layers(const Dataflow& dataflow);

}  // namespace strata
