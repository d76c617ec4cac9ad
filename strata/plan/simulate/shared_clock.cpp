#include "strata/plan/simulate/shared_clock.h"

#include <algorithm>

namespace strata {

double ComputeSeconds::operator()(LayerRange range, Op op) {
  const Part part = op == Op::kBackward         ? kBackward
                    : op == Op::kBackwardInput  ? kInputs
                    : op == Op::kBackwardWeight ? kWeights
                                                : kForward;
  if (range.size() == 1) return of(layers_[range.begin], part);
  const std::uint64_t key = (static_cast<std::uint64_t>(range.begin) << 32) | range.end;
  const auto [known, is_new] = known_[part].try_emplace(key, 0.0);
  if (is_new)
    for (int l = range.begin; l < range.end; ++l) known->second += of(layers_[l], part);
  return known->second;
}

double ComputeSeconds::of(const LayerCost& layer, Part part) {
  switch (part) {
    case kForward:
      return layer.forward_seconds;
    case kBackward:
      return layer.backward_seconds;
    case kInputs:
      return layer.backward_seconds - layer.weight_seconds;
    default:
      return layer.weight_seconds;
  }
}

SharedClock make_shared_clock(const Schedule& schedule, const Dataflow& dataflow,
                              const CostTable& costs, const CollectiveSeconds& collectives,
                              const TierSeconds& tier_seconds, const RecordedPrograms& recorded) {
  SharedClock shared{.costs = &costs,
                     .num_ranks = schedule.num_ranks(),
                     .collective_seconds = &collectives,
                     .tier_seconds = &tier_seconds,
                     .dataflow = &dataflow,
                     .layer_seconds = ComputeSeconds(costs),
                     .recorded = &recorded};
  shared.link_free.resize(schedule.num_ranks());
  const std::vector<int>& devices = costs.devices.of_rank;
  shared.device_clocks.resize(devices.empty() ? schedule.num_ranks()
                                              : *std::ranges::max_element(devices) + 1);
  if (!dataflow.ties.empty()) shared.owners.resize(dataflow.num_layers);
  for (const Tie& tie : dataflow.ties)
    for (const int user : tie.users) shared.owners[user].push_back(tie.owner);
  double seconds = 0;
  double bytes = 0;
  for (const ValueCost& value : costs.values) {
    seconds += value.transfer_seconds;
    bytes += static_cast<double>(value.bytes);
  }
  if (bytes > 0) shared.tie_seconds_per_byte = seconds / bytes;
  return shared;
}

}  // namespace strata
