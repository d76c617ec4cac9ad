// Updates by trust ratios that are frozen with the variances (optim/one_bit_lamb.h). Part of
// StageMachine.
//
// Every rank of a layer keeps the same ratios: warm-up updates find them from sums that all have,
// and later factors as the largest over all ranks that hold parts. The first action that is no
// update compares the factors of all layers at once, and moves the weights.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "strata/base/measurement.h"
#include "strata/comm/collectives.h"
#include "strata/device/account.h"
#include "strata/optim/one_bit_lamb.h"
#include "strata/pipeline/stage_machine.h"

namespace strata {

std::vector<FrozenRatio>& StageMachine::frozen_ratios_of(int layer) {
  return frozen_ratios_.try_emplace(layer, weight_blocks_of(layer).weights().size()).first->second;
}

at::Tensor StageMachine::frozen_ratio(int layer, std::size_t weight) {
  if (optimizer_ == nullptr || !optimizer_->freezes_trust_ratios()) return {};
  const auto& weights = weight_blocks_of(layer).weights();
  const auto found = std::ranges::find(weights, weight, &WeightBlocks::Weight::index);
  if (found == weights.end()) return {};
  FrozenRatio& ratio = frozen_ratios_of(layer)[static_cast<std::size_t>(found - weights.begin())];
  return at::from_blob(&ratio, {2}, host_options(at::kFloat));
}

void StageMachine::remember_ratios(int layer, const std::vector<double>& ratios) {
  std::vector<FrozenRatio>& frozen = frozen_ratios_of(layer);
  for (std::size_t i = 0; i < ratios.size(); ++i)
    frozen[i] =
        with_ratio(optimizer_->options(), frozen[i], update_number(step_end_.known()), ratios[i]);
}

// The averaged direction is in place of the gradients.
void StageMachine::begin_factor_update(const OneBitStep& step, Pin pin, ColumnStatistics found,
                                       UpdateRange range) {
  const StepScalars& scalars = step_end_.known();
  const OneBitLambStep lamb =
      one_bit_lamb_step(optimizer_->options(), update_number(scalars), scalars.learning_rate, step);
  const int layer = pin.layer();
  std::vector<double> largest =
      refresh_variances(lamb, weight_blocks_of(layer), range, pin.placement().shard.begin,
                        padding_of(layer), range.gradients);
  factor_updates_.push_back(
      {lamb, std::move(pin), std::move(found), std::move(range), std::move(largest)});
}

// The largest factors of all layers in progress, one for each weight with decay.
std::vector<double> StageMachine::max_over_parts() {
  const UnchargedScope uncharged;  // numbers of the step
  std::vector<double> factors;
  for (const FactorUpdate& update : factor_updates_)
    factors.insert(factors.end(), update.largest.begin(), update.largest.end());
  for (Group* group : {&groups_.shard, &groups_[Axis::kTensor]}) {
    if (group->size() == 1 || factors.empty()) continue;
    at::Tensor all = at::empty({std::ssize(factors)}, host_options(at::kDouble));
    std::ranges::copy(factors, all.mutable_data_ptr<double>());
    all_reduce_max(*group, all);
    std::copy_n(all.const_data_ptr<double>(), factors.size(), factors.begin());
  }
  return factors;
}

void StageMachine::finish_factor_updates() {
  if (factor_updates_.empty()) return;
  const std::vector<double> factors = max_over_parts();
  const double* next = factors.data();
  for (; !factor_updates_.empty(); factor_updates_.pop_front()) {
    const FactorUpdate& update = factor_updates_.front();
    const int layer = update.pin.layer();
    const double began = now_seconds();
    std::vector<FrozenRatio>& frozen = frozen_ratios_of(layer);
    for (FrozenRatio& ratio : frozen) ratio = with_factor(optimizer_->options(), ratio, *next++);
    move_weights(update.step, weight_blocks_of(layer), update.range,
                 update.pin.placement().shard.begin, frozen, update.range.gradients);
    move_statistics_of(update.pin, update.found);
    // An update by messages is not measured.
    if (groups_.replica.size() == 1) layer_times_.add_update(layer, now_seconds() - began);
    start_gather(layer);
  }
}

}  // namespace strata
