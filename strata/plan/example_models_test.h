/// Builds the small models that the tests of this folder plan.
#pragma once

#include <string>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/layout/dataflow.h"
#include "strata/layout/mesh.h"
#include "strata/schedule/builders.h"

namespace strata {

/// A chain: layer l+1 reads the value of layer l. No layer reads the last value.
inline Dataflow chain(int num_layers) {
  Dataflow dataflow{.num_layers = num_layers};
  for (int l = 0; l + 1 < num_layers; ++l) {
    dataflow.values.push_back(
        {.name = "x" + std::to_string(l), .producer = l, .consumers = {l + 1}});
  }
  return dataflow;
}

/// Equal layers and values with the given costs only.
inline CostTable equal_costs(const Dataflow& dataflow, const LayerCost& layer,
                             const ValueCost& value = {}) {
  CostTable costs;
  costs.layers.assign(dataflow.num_layers, layer);
  for (int l = 0; l < dataflow.num_layers; ++l) costs.layers[l].name = "layer" + std::to_string(l);
  costs.values.assign(dataflow.values.size(), value);
  return costs;
}

/// The work of a transformer block.
inline LayerWork block_work(const AttentionShape& attention = {}) {
  return {.forward_kernels = 10, .backward_kernels = 36, .attention = attention};
}

/// The sums of tensor-parallel ranks in a chain of blocks between an embedding and a head, whose
/// values are whole tensors of `bytes`.
inline void add_sums_of_blocks(CostTable& costs, std::int64_t bytes) {
  for (std::size_t l = 0; l < costs.layers.size(); ++l) {
    const bool first = l == 0, last = l + 1 == costs.layers.size();
    costs.layers[l].work.forward_sum_bytes = first ? bytes : last ? 0 : 2 * bytes;
    costs.layers[l].work.backward_sum_bytes = last ? bytes : first ? 0 : 2 * bytes;
  }
}

/// Sets the pipeline and the micro-batches of a PlanRequest.
template <typename Request>
void set_shape(Request& request, const PipelineShape& shape) {
  request.mesh.axes[Axis::kPipeline] = shape.ranks;
  request.micro_batches = shape.micro_batches;
  request.virtual_stages = shape.virtual_stages;
}

inline Partition equal_stages(int num_layers, int num_stages) {
  Partition partition;
  for (int s = 0; s <= num_stages; ++s) partition.bounds.push_back(s * num_layers / num_stages);
  return partition;
}

}  // namespace strata
