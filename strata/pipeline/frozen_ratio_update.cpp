// Updates by trust ratios that are frozen with the variances (optim/one_bit_lamb.h). Part of
// StageMachine.
//
// Every rank of a layer keeps the same ratios: warm-up updates find them from sums that all have,
// and later factors from directions that all have.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "strata/comm/collectives.h"
#include "strata/device/account.h"
#include "strata/optim/one_bit_lamb.h"
#include "strata/pipeline/stage_machine.h"

namespace strata {

const FrozenRatios& StageMachine::frozen_ratios_of(int layer) {
  const auto known = frozen_ratios_.find(layer);
  if (known != frozen_ratios_.end()) return known->second;
  const UnchargedScope uncharged;  // two numbers a weight
  return frozen_ratios_.emplace(layer, weight_blocks_of(layer)).first->second;
}

at::Tensor StageMachine::frozen_ratio(int layer, std::size_t weight) {
  if (optimizer_ == nullptr || !optimizer_->freezes_trust_ratios()) return {};
  const auto& weights = weight_blocks_of(layer).weights();
  const auto found = std::ranges::find(weights, weight, &WeightBlocks::Weight::index);
  if (found == weights.end()) return {};
  return frozen_ratios_of(layer).state_of(static_cast<std::size_t>(found - weights.begin()));
}

void StageMachine::remember_ratios(int layer, const std::vector<double>& ratios) {
  const FrozenRatios& frozen = frozen_ratios_of(layer);
  const std::vector<FrozenRatio> before = frozen.all();
  for (std::size_t i = 0; i < ratios.size(); ++i)
    frozen.set(i, with_ratio(optimizer_->options(), before[i], update_number(step_end_.known()),
                             ratios[i]));
}

// Moves the weights by the averaged direction of a round.
void StageMachine::move_by_mean(const SignRound& round, const OneBitStep& step, const Pin& pin,
                                const UpdateRange& range, const at::Tensor& direction) {
  if (optimizer_->freezes_trust_ratios()) return move_by_frozen_ratios(pin, range, direction);
  end_round(round, step, range, direction);
}

// Collective over the ranks that hold parts of the layer.
void StageMachine::move_by_frozen_ratios(const Pin& pin, const UpdateRange& range,
                                         const at::Tensor& direction) {
  const StepScalars& scalars = step_end_.known();
  const OptimizerOptions& options = optimizer_->options();
  const WeightBlocks& blocks = weight_blocks_of(pin.layer());
  const FrozenRatios& frozen = frozen_ratios_of(pin.layer());
  const std::int64_t begin = pin.placement().shard.begin;
  const OneBitLambStep step =
      one_bit_lamb_step(options, update_number(scalars), scalars.learning_rate, scalars.factor,
                        groups_.replica.size());
  std::vector<double> largest =
      refresh_variances(step, blocks, range, begin, padding_of(pin.layer()), direction);
  take_largest(largest);
  std::vector<FrozenRatio> ratios = frozen.all();
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    ratios[i] = with_factor(options, ratios[i], largest[i]);
    frozen.set(i, ratios[i]);
  }
  move_weights(step, blocks, range, begin, ratios, direction);
}

void StageMachine::take_largest(std::vector<double>& numbers) {
  const UnchargedScope uncharged;  // numbers of the step
  for (Group* group : {&groups_.shard, &groups_[Axis::kTensor]}) {
    if (group->size() == 1 || numbers.empty()) continue;
    at::Tensor all = at::empty({std::ssize(numbers)}, host_options(at::kDouble));
    std::ranges::copy(numbers, all.mutable_data_ptr<double>());
    all_reduce_max(*group, all);
    std::copy_n(all.const_data_ptr<double>(), numbers.size(), numbers.begin());
  }
}

}  // namespace strata
