/// Says which layers' gradients and weights the replicas of a stage share (ZeRO), as far as a
/// program must know it; the bytes are shard/'s business.
///
/// Layers that take part in a tie keep their weights and gradients whole: uses on other ranks read
/// and add to them; only their optimizer states are divided.
///
/// Source  Rajbhandari et al. 2020 (ZeRO).
#pragma once

#include <vector>

#include "strata/schedule/dataflow.h"

namespace strata::schedule {

/// Per layer; empty vectors: no layer.
struct Sharing {
  std::vector<char> reduced = {};            ///< gradients are added over replicas
  std::vector<char> each = {};               ///< after each micro-batch; else once a step
  std::vector<char> fetched = {};            ///< weights are fetched before each use (stage 3)
  std::vector<char> divided_gradients = {};  ///< only a shard of them stays (stages 2 and 3)
  bool gather = false;                       ///< updated weights are exchanged (shards of states)

  static bool has(const std::vector<char>& layers, int layer) {
    return !layers.empty() && layers[layer];
  }
  bool is_reduced(int layer) const { return has(reduced, layer); }
  bool is_each(int layer) const { return has(each, layer); }
  bool is_fetched(int layer) const { return has(fetched, layer); }
};

struct SharingRequest {
  int replicas = 1;                ///< mesh.dp
  int shards = 1;                  ///< replicas that share one set of shards
  int zero = 0;                    ///< stage 0-3
  bool reduce_each = false;        ///< stages 2 and 3: reduce after each micro-batch
  bool partial_gradients = false;  ///< sequence parallelism: a reduction even without replicas
};

/// `has_weights`: per layer.
Sharing make_sharing(const Dataflow& dataflow, const std::vector<char>& has_weights,
                     const SharingRequest& request);

bool takes_part_in_tie(const Dataflow& dataflow, int layer);

}  // namespace strata::schedule
