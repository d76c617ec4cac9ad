/// Builds the small models that tests cut and schedule.
#pragma once

#include <string>
#include <vector>

#include "strata/layout/dataflow.h"

namespace strata {

/// A chain of layers: layer l+1 reads the value of layer l. No layer reads the last value (the
/// loss).
inline Dataflow chain(int num_layers) {
  Dataflow dataflow{.num_layers = num_layers, .values = {}, .ties = {}};
  for (int l = 0; l < num_layers; ++l) {
    Value value;
    value.name = "x" + std::to_string(l);
    value.producer = l;
    if (l + 1 < num_layers) value.consumers = {l + 1};
    dataflow.values.push_back(value);
  }
  return dataflow;
}

/// The chain with a skip from the first layer to the middle and the last one, and a weight of the
/// first layer tied to the last.
inline Dataflow chain_with_skip_and_tie(int num_layers) {
  Dataflow dataflow = chain(num_layers);
  if (num_layers < 4) return dataflow;
  dataflow.values.push_back(
      {.name = "skip", .producer = 0, .consumers = {num_layers / 2, num_layers - 1}});
  dataflow.ties.push_back({.name = "weight", .owner = 0, .users = {num_layers - 1}});
  return dataflow;
}

inline Partition equal_stages(int stages, int layers_a_stage) {
  Partition partition;
  for (int s = 0; s <= stages; ++s) partition.bounds.push_back(s * layers_a_stage);
  return partition;
}

}  // namespace strata
