#include "strata/plan/stage_estimate.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {
namespace {

bool inside(int layer, LayerRange layers) { return layer >= layers.begin && layer < layers.end; }

}  // namespace

StageEstimator::StageEstimator(const Wiring& wiring, const CostTable& costs,
                               const std::vector<char>& recompute, bool transfers)
    : wiring_(&wiring),
      costs_(&costs),
      recompute_(recompute),
      transfers_(transfers),
      inputs_(wiring.num_layers),
      outputs_(wiring.num_layers),
      owners_(wiring.num_layers) {
  STRATA_CHECK_EQ(costs.layers.size(), static_cast<std::size_t>(wiring.num_layers),
                  "plan.estimate");
  STRATA_CHECK_EQ(costs.values.size(), wiring.values.size(), "plan.estimate");
  recompute_.resize(wiring.num_layers);
  for (std::size_t v = 0; v < wiring.values.size(); ++v) {
    outputs_[wiring.values[v].producer].push_back(static_cast<int>(v));
    for (const int consumer : wiring.values[v].consumers) {
      inputs_[consumer].push_back(static_cast<int>(v));
    }
  }
  for (const Tie& tie : wiring.ties) {
    for (const int user : tie.users) owners_[user].push_back(tie.owner);
  }
}

StageEstimate StageEstimator::operator()(LayerRange layers) const {
  StageEstimate estimate;
  for (int l = layers.begin; l < layers.end; ++l) {
    add_layer(estimate, layers, l);
    add_values(estimate, layers, l);
  }
  return estimate;
}

void StageEstimator::add_layer(StageEstimate& estimate, LayerRange layers, int layer) const {
  const LayerCost& cost = costs_->layers[layer];
  estimate.seconds += cost.forward_seconds + cost.backward_seconds;
  if (recompute_[layer]) {
    estimate.seconds += cost.forward_seconds;
  } else {
    estimate.activation_bytes += cost.saved_bytes;
  }
  estimate.fixed_bytes += cost.weight_bytes + cost.gradient_bytes + cost.state_bytes;
  const auto& owners = owners_[layer];
  if (std::any_of(owners.begin(), owners.end(), [&](int o) { return !inside(o, layers); })) {
    estimate.fixed_bytes += cost.replica_bytes;
  }
  estimate.transient_bytes = std::max(estimate.transient_bytes, transient_bytes(layer));
}

void StageEstimator::add_values(StageEstimate& estimate, LayerRange layers, int layer) const {
  for (const int v : inputs_[layer]) {
    const Value& value = wiring_->values[v];
    const auto first = std::find_if(value.consumers.begin(), value.consumers.end(),
                                    [&](int c) { return inside(c, layers); });
    if (*first != layer) continue;  // counted with its first reader
    estimate.activation_bytes += costs_->values[v].bytes;
    if (inside(value.producer, layers)) continue;
    estimate.boundary_bytes += costs_->values[v].bytes;
    if (transfers_) estimate.seconds += costs_->values[v].transfer_seconds;
  }
  for (const int v : outputs_[layer]) {
    const Value& value = wiring_->values[v];
    const bool leaves = !value.consumers.empty() && value.consumers.back() >= layers.end;
    if (leaves && value.differentiable && transfers_) {
      estimate.seconds += costs_->values[v].transfer_seconds;
    }
  }
}

std::int64_t StageEstimator::transient_bytes(int layer) const {
  const LayerCost& cost = costs_->layers[layer];
  std::int64_t forward = cost.forward_transient_bytes;
  std::int64_t backward = cost.backward_transient_bytes;
  if (recompute_[layer]) {
    forward += cost.saved_bytes;
    backward += cost.saved_bytes;
  }
  for (const int v : outputs_[layer]) {
    const Value& value = wiring_->values[v];
    const std::int64_t bytes = costs_->values[v].bytes;
    forward += bytes;
    if (value.differentiable) backward += bytes * static_cast<int>(value.consumers.size());
  }
  for (const int v : inputs_[layer]) {
    if (wiring_->values[v].differentiable) backward += costs_->values[v].bytes;
  }
  return std::max(forward, backward);
}

}  // namespace strata
