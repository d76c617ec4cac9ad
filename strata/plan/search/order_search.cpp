#include "strata/plan/search/order_search.h"

#include <algorithm>

namespace strata {

namespace {

StageCosts costs_of_stage(const OrderRequest& request, int stage) {
  const CostTable& costs = request.costs;
  const LayerRange layers = request.partition.layers(stage);
  StageCosts sum{.forward = costs.overhead_seconds,
                 .input = costs.overhead_seconds,
                 .weight = costs.overhead_seconds,
                 .saved = 0};
  for (int l = layers.begin; l < layers.end; ++l) {
    const LayerCost& cost = costs.layers[l];
    const bool again = request.recompute.has(l);
    sum.forward += cost.forward_seconds;
    sum.input += cost.backward_seconds - cost.weight_seconds + (again ? cost.forward_seconds : 0);
    sum.weight += cost.weight_seconds;
    sum.saved += static_cast<double>(cost.input_bytes + (again ? 0 : cost.saved_bytes));
    sum.kept += static_cast<double>(cost.input_bytes + cost.kept_bytes);
  }
  const double ranks = request.partition.num_stages();
  sum.most = std::max(request.activations * ranks * sum.saved,
                      // a rank must get from a forward to the end of its backward
                      sum.saved + std::max(sum.saved, sum.kept));
  return sum;
}

}  // namespace

std::vector<StageCosts> stage_costs(const OrderRequest& request) {
  std::vector<StageCosts> stages;
  for (int stage = 0; stage < request.partition.num_stages(); ++stage)
    stages.push_back(costs_of_stage(request, stage));
  return stages;
}

double longest_transfer(const OrderRequest& request) {
  double longest = 0;
  for (std::size_t v = 0; v < request.costs.values.size(); ++v) {
    const Value& value = request.dataflow.values[v];
    const int stage = request.partition.stage_of(value.producer);
    const bool leaves = std::ranges::any_of(
        value.consumers, [&](int layer) { return request.partition.stage_of(layer) != stage; });
    if (leaves) longest = std::max(longest, request.costs.values[v].transfer_seconds);
  }
  return longest;
}

Schedule searched_order(const OrderRequest& request) {
  return search_zero_bubble(stage_costs(request), request.micro_batches, longest_transfer(request))
      .schedule;
}

}  // namespace strata
