// The partitioner requests millions of estimates, so none may walk over the layers of a stage.
// Costs of single layers are differences of two prefix sums. What depends on the ends of a stage
// are the values that cross them, one in a chain, and the ties that leave the stage.
#include "strata/plan/search/stage_estimate.h"

#include <algorithm>
#include <bit>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Peak in addition to what is kept while the layer runs; the larger of both directions.
std::vector<std::int64_t> transient_bytes_of(const Dataflow& dataflow, const CostTable& costs,
                                             const LayerSet& recompute) {
  std::vector<std::int64_t> forward(dataflow.num_layers), backward(dataflow.num_layers);
  for (int l = 0; l < dataflow.num_layers; ++l) {
    const LayerCost& cost = costs.layers[l];
    const std::int64_t saved = recompute.has(l) ? cost.saved_bytes : 0;
    forward[l] = std::max(cost.forward_transient_bytes + saved,
                          recompute.has(l) ? cost.no_grad_transient_bytes : 0);
    backward[l] = cost.backward_transient_bytes + saved;
  }
  for (std::size_t v = 0; v < dataflow.values.size(); ++v) {
    const Value& value = dataflow.values[v];
    const std::int64_t bytes = costs.values[v].bytes;
    forward[value.producer] += bytes;
    if (!value.differentiable) continue;
    backward[value.producer] += bytes * static_cast<int>(value.consumers.size());
    for (const int consumer : value.consumers) backward[consumer] += bytes;
  }
  for (int l = 0; l < dataflow.num_layers; ++l) forward[l] = std::max(forward[l], backward[l]);
  return forward;
}

}  // namespace

RangeMaximum::RangeMaximum(std::vector<std::int64_t> numbers) {
  const std::size_t size = numbers.size();
  levels_.push_back(std::move(numbers));
  for (std::size_t step = 1; 2 * step <= size; step *= 2) {
    const std::vector<std::int64_t>& halves = levels_.back();
    std::vector<std::int64_t> level(size - 2 * step + 1);
    for (std::size_t i = 0; i < level.size(); ++i) {
      level[i] = std::max(halves[i], halves[i + step]);
    }
    levels_.push_back(std::move(level));
  }
}

std::int64_t RangeMaximum::operator()(int begin, int end) const {
  const auto& level = levels_[std::bit_width(static_cast<unsigned>(end - begin)) - 1];
  return std::max(level[begin], level[end - (levels_[0].size() - level.size() + 1)]);
}

StageEstimator::StageEstimator(const Dataflow& dataflow, const CostTable& costs,
                               const LayerSet& recompute, bool transfers)
    : transfers_(transfers),
      num_layers_(dataflow.num_layers),
      transient_bytes_(transient_bytes_of(dataflow, costs, recompute)) {
  STRATA_CHECK_EQ(costs.layers.size(), static_cast<std::size_t>(dataflow.num_layers),
                  "plan.estimate");
  STRATA_CHECK_EQ(costs.values.size(), dataflow.values.size(), "plan.estimate");
  add_layers(costs, recompute);
  add_values(dataflow, costs);
  add_ties(dataflow, costs);
}

void StageEstimator::add_layers(const CostTable& costs, const LayerSet& recompute) {
  seconds_ = {0};
  fixed_bytes_ = saved_bytes_ = {0};
  for (int l = 0; l < num_layers_; ++l) {
    const LayerCost& cost = costs.layers[l];
    const bool recomputed = recompute.has(l);
    seconds_.push_back(seconds_.back() + cost.forward_seconds + cost.backward_seconds +
                       (recomputed ? cost.forward_seconds : 0));
    saved_bytes_.push_back(saved_bytes_.back() + (recomputed ? 0 : cost.saved_bytes));
    fixed_bytes_.push_back(fixed_bytes_.back() + cost.weight_bytes + cost.gradient_bytes +
                           cost.state_bytes + cost.batch_gradient_bytes);
  }
}

void StageEstimator::add_values(const Dataflow& dataflow, const CostTable& costs) {
  std::vector<std::int64_t> first_read(num_layers_);
  crossings_.resize(num_layers_ + 1);
  for (std::size_t v = 0; v < dataflow.values.size(); ++v) {
    const Value& value = dataflow.values[v];
    if (value.consumers.empty()) continue;
    first_read[value.consumers.front()] += costs.values[v].bytes;
    std::size_t next = 0;
    for (int boundary = value.producer + 1; boundary <= value.consumers.back(); ++boundary) {
      while (value.consumers[next] < boundary) ++next;
      crossings_[boundary].push_back({.producer = value.producer,
                                      .next_reader = value.consumers[next],
                                      .read_before = next > 0,
                                      .differentiable = value.differentiable,
                                      .bytes = costs.values[v].bytes,
                                      .seconds = costs.values[v].transfer_seconds});
    }
  }
  first_read_bytes_ = {0};
  for (const std::int64_t bytes : first_read) {
    first_read_bytes_.push_back(first_read_bytes_.back() + bytes);
  }
}

void StageEstimator::add_ties(const Dataflow& dataflow, const CostTable& costs) {
  std::map<int, int> first_owners;  // by using layer, which follows all of its owners
  for (const Tie& tie : dataflow.ties) {
    for (const int user : tie.users) {
      int& first = first_owners.try_emplace(user, tie.owner).first->second;
      first = std::min(first, tie.owner);
    }
  }
  for (const auto& [layer, first_owner] : first_owners) {
    TieUses& uses = uses_[first_owner];
    if (uses.bytes_before.empty()) uses.bytes_before.push_back(0);
    uses.layers.push_back(layer);
    uses.bytes_before.push_back(uses.bytes_before.back() + costs.layers[layer].replica_bytes);
  }
}

std::int64_t StageEstimator::TieUses::within(LayerRange range) const {
  const auto at = [&](int layer) {
    return bytes_before[std::lower_bound(layers.begin(), layers.end(), layer) - layers.begin()];
  };
  return at(range.end) - at(range.begin);
}

double StageEstimator::least_seconds(LayerRange layers) const {
  return seconds_[layers.end] - seconds_[layers.begin];
}

std::int64_t StageEstimator::least_fixed_bytes(LayerRange layers) const {
  return fixed_bytes_[layers.end] - fixed_bytes_[layers.begin];
}

std::int64_t StageEstimator::least_activation_bytes(LayerRange layers) const {
  return saved_bytes_[layers.end] - saved_bytes_[layers.begin];
}

StageEstimate StageEstimator::operator()(LayerRange layers) const {
  const auto [begin, end] = layers;
  StageEstimate estimate{.seconds = least_seconds(layers),
                         .fixed_bytes = least_fixed_bytes(layers),
                         .activation_bytes = least_activation_bytes(layers) +
                                             first_read_bytes_[end] - first_read_bytes_[begin],
                         .transient_bytes = transient_bytes_(begin, end)};
  for (const Crossing& value : crossings_[begin]) {
    if (value.next_reader >= end) continue;
    estimate.boundary_bytes += value.bytes;
    if (value.read_before) estimate.activation_bytes += value.bytes;
    if (transfers_) estimate.seconds += value.seconds;
  }
  for (const Crossing& value : crossings_[end]) {
    if (value.producer >= begin && value.differentiable && transfers_) {
      estimate.seconds += value.seconds;
    }
  }
  for (const auto& [first_owner, uses] : uses_) {
    if (first_owner < begin) {
      estimate.fixed_bytes += uses.within(layers);
    } else if (first_owner < end) {  // in transit to the users when a step begins
      estimate.fixed_bytes += uses.within({end, num_layers_});
    }
  }
  return estimate;
}

}  // namespace strata
