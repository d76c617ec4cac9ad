// Updates of weights by trust ratios (optim/lamb.h). Part of StageMachine.
//
// A rank moves the momenta of its shard of every layer and sums the squares of its blocks; ranks
// that share a layer gather those. The sums of the first layers are on their way while the rank
// works on the next ones. The first action that is no update adds the slices of tensor parallelism,
// for all layers at once, and moves the weights.
#include <span>
#include <utility>
#include <vector>

#include "strata/base/measurement.h"
#include "strata/comm/collectives.h"
#include "strata/device/account.h"
#include "strata/optim/lamb.h"
#include "strata/pipeline/stage_machine.h"

namespace strata {
namespace {

// The shards' sums in those of a layer.
Shards shards_of_sums(const WeightBlocks& blocks, const Shards& shards) {
  Shards sums;
  for (const FlatRange& shard : shards) {
    const FlatRange of_shard = blocks.in(shard);
    sums.push_back({2 * of_shard.begin, 2 * of_shard.end});
  }
  return sums;
}

}  // namespace

LambStep StageMachine::ratio_step() const {
  const StepScalars& scalars = step_end_.known();
  return lamb_step(optimizer_->options(), update_number(scalars), scalars.learning_rate,
                   scalars.factor);
}

const WeightBlocks& StageMachine::weight_blocks_of(int layer) {
  const auto known = weight_blocks_.find(layer);
  if (known != weight_blocks_.end()) return known->second;
  return weight_blocks_.emplace(layer, model_.layout(layer)).first->second;
}

void StageMachine::begin_ratio_update(int layer) {
  STRATA_CHECK(!updates_on_host(layer), "pipeline.begin_ratio_update");
  ColumnStatistics found = find_statistics(layer);
  const double began = now_seconds();
  Pin pin = acquire_to_update(layer);
  UpdateRange range = update_range(pin);
  const WeightBlocks& blocks = weight_blocks_of(layer);
  const UnchargedScope uncharged;  // numbers of the step
  AllGather squares = AllGather::start(
      groups_.shard, find_directions(ratio_step(), blocks, range, pin.placement().shard.begin),
      shards_of_sums(blocks, cuts_of(layer).shards));
  ratio_updates_.push_back(
      {std::move(pin), std::move(found), std::move(range), std::move(squares)});
  layer_times_.add_update(layer, now_seconds() - began);
}

// Of all layers in progress, two sums of squares for each weight.
std::vector<double> StageMachine::sum_weights() {
  const UnchargedScope uncharged;
  Group& slices = groups_[Axis::kTensor];
  std::vector<double> sums;
  for (RatioUpdate& update : ratio_updates_) {
    const WeightBlocks& blocks = weight_blocks_of(update.pin.layer());
    const std::vector<double> own = add_blocks(blocks, update.squares.finish(), slices.rank());
    sums.insert(sums.end(), own.begin(), own.end());
  }
  slices.all_reduce(sums);
  return sums;
}

void StageMachine::finish_ratio_updates() {
  if (ratio_updates_.empty()) return;
  const LambStep step = ratio_step();
  const std::vector<double> sums = sum_weights();
  const BegunUpdate begun = optimizer_->begin_update(step_end_.scalars(), groups_.world.device());
  std::span<const double> rest = sums;
  for (; !ratio_updates_.empty(); ratio_updates_.pop_front()) {
    const RatioUpdate& update = ratio_updates_.front();
    const std::size_t of_layer = 2 * weight_blocks_of(update.pin.layer()).weights().size();
    const std::vector<double> ratios = trust_ratios(step, rest.first(of_layer));
    rest = rest.subspan(of_layer);
    if (optimizer_->freezes_trust_ratios()) remember_ratios(update.pin.layer(), ratios);
    move_by_ratios(step, begun, update, ratios);
  }
}

void StageMachine::move_by_ratios(const LambStep& step, const BegunUpdate& begun,
                                  const RatioUpdate& update, const std::vector<double>& ratios) {
  const int layer = update.pin.layer();
  const double began = now_seconds();
  move_by_directions(step, weight_blocks_of(layer), update.range,
                     update.pin.placement().shard.begin, ratios);
  const FlatRange rest{update.range.decay_numel, update.range.weights.numel()};
  if (rest.size() > 0) optimizer_->update(narrowed(update.range, rest), begun);
  move_statistics_of(update.pin, update.found);
  layer_times_.add_update(layer, now_seconds() - began);
  start_gather(layer);
}

}  // namespace strata
