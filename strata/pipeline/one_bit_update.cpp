// Updates by momenta that replicas average in one bit an element (optim/one_bit_adam.h). Part of
// StageMachine.
//
// Replicas do not sum gradients then. With ZeRO, those that share one set of shards (a shard group)
// act as one replica: they sum their gradients, and each rank sends the signs of its own shard to
// the ranks that keep the same shard. While the messages of a layer are on their way, the rank
// computes those of the next layers: it averages a layer when it has sent the next one, and moves
// its weights one layer later. The first action that is no update finishes what is on its way.
//
// Inside a round of 0/1 Adam no signs are sent: each group moves its own weights.
#include <algorithm>
#include <utility>
#include <vector>

#include "strata/base/measurement.h"
#include "strata/comm/one_bit_mean.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/pipeline/stage_machine.h"

namespace strata {
namespace {

// The parts of the rank's shard that the ranks with the same shard average, in elements of its
// `trained` ones.
Shards trained_parts(const LayerCuts& cuts, const MeshGroups& groups, std::int64_t trained) {
  const int shard = groups.shard.rank();
  const std::int64_t begin = cuts.shards[static_cast<std::size_t>(shard)].begin;
  Shards parts;
  for (int group = 0; group < groups.replica.size(); ++group) {
    const FlatRange part =
        cuts.parts[static_cast<std::size_t>(group * groups.shard.size() + shard)];
    parts.push_back({std::min(part.begin - begin, trained), std::min(part.end - begin, trained)});
  }
  return parts;
}

// The elements between weights, and those that make slices equally long.
std::vector<FlatRange> find_padding(const LayerLayout& layout, const Group& slices) {
  std::vector<FlatRange> weights, padding;
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    if (place.borrowed) continue;
    for (const Run& run : slice_runs(layout.specs[i], slices.rank(), slices.size()))
      weights.push_back({place.offset + run.local, place.offset + run.local + run.numel});
  }
  std::ranges::sort(weights, {}, &FlatRange::begin);
  std::int64_t end = 0;
  for (const FlatRange& weight : weights) {
    if (end < weight.begin) padding.push_back({end, weight.begin});
    end = weight.end;
  }
  if (end < layout.trained_numel) padding.push_back({end, layout.trained_numel});
  return padding;
}

// Padding stays zero, as signs are not. `flat`: the elements of the layer from `begin` on.
void clear(const at::Tensor& flat, std::int64_t begin, const std::vector<FlatRange>& padding) {
  for (const FlatRange& range : padding) {
    const std::int64_t from = std::max<std::int64_t>(range.begin - begin, 0);
    const std::int64_t to = std::min(range.end - begin, flat.numel());
    if (from < to) flat.narrow(0, from, to - from).zero_();
  }
}

}  // namespace

bool StageMachine::sends_signs() const {
  const StepScalars& scalars = step_end_.known();
  return optimizer_ != nullptr && groups_.replica.size() > 1 && scalars.updates != 0 &&
         optimizer_->sends_signs(update_number(scalars));
}

// One group has no other to be apart from.
bool StageMachine::synchronises() const {
  return groups_.replica.size() == 1 || optimizer_->synchronises(update_number(step_end_.known()));
}

OneBitStep StageMachine::sign_step() const {
  const StepScalars& scalars = step_end_.known();
  return one_bit_step(optimizer_->options(), update_number(scalars), scalars.learning_rate,
                      scalars.factor, groups_.replica.size());
}

void StageMachine::update_by_signs(const OneBitStep& step, int layer) {
  if (!synchronises()) return update_apart(step, layer);
  if (groups_.replica.size() == 1) return update_alone(step, layer);
  send_signs(step, layer);
}

// After all layers of the step.
void StageMachine::end_sign_update() {
  const StepScalars& scalars = step_end_.known();
  if (optimizer_ == nullptr || scalars.updates == 0 || scalars.skip != 0 ||
      !optimizer_->sends_signs(update_number(scalars)))
    return;
  sign_round_ = synchronises() ? SignRound{} : sign_round_.with(sign_step());
}

const std::vector<FlatRange>& StageMachine::padding_of(int layer) {
  const auto known = padding_.find(layer);
  if (known != padding_.end()) return known->second;
  return padding_.emplace(layer, find_padding(model_.layout(layer), groups_[Axis::kTensor]))
      .first->second;
}

void StageMachine::update_apart(const OneBitStep& step, int layer) {
  const ColumnStatistics found = find_statistics(layer);
  const double began = now_seconds();
  const Pin pin = acquire_to_update(layer);
  move_apart(step, update_range(pin), /*first=*/sign_round_.updates == 0);
  move_statistics_of(pin, found);
  layer_times_.add_update(layer, now_seconds() - began);
  start_gather(layer);
}

// Moves the weights by the averaged direction of a round, which is in place of the gradients.
void StageMachine::move_by_mean(const SignRound& round, const OneBitStep& step, Pin pin,
                                ColumnStatistics found, UpdateRange range) {
  if (optimizer_->freezes_trust_ratios())
    return begin_factor_update(step, std::move(pin), std::move(found), std::move(range));
  end_round(round, step, range, range.gradients);
  move_statistics_of(pin, found);
  start_gather(pin.layer());
}

// A group alone sends nothing and omits nothing.
void StageMachine::update_alone(const OneBitStep& step, int layer) {
  const double began = now_seconds();
  ColumnStatistics found = find_statistics(layer);
  Pin pin = acquire_to_update(layer);
  UpdateRange range = update_range(pin);
  add_momenta(step, range);
  const at::Tensor direction = range.gradients;  // which are not read again
  direction.copy_(range.slots.at(kWorkerErrorSlot)).add_(range.slots.at(kServerErrorSlot));
  for (const OneBitSlot error : {kWorkerErrorSlot, kServerErrorSlot}) range.slots.at(error).zero_();
  move_by_mean(sign_round_.with(step), step, std::move(pin), std::move(found), std::move(range));
  layer_times_.add_update(layer, now_seconds() - began);
}

// Collective over the ranks that keep the same shard.
void StageMachine::send_signs(const OneBitStep& step, int layer) {
  ColumnStatistics found = find_statistics(layer);
  Pin pin = acquire_to_update(layer);
  UpdateRange range = update_range(pin);
  const at::Tensor sent = range.slots.at(kWorkerErrorSlot);
  add_momenta(step, range);
  clear(sent, pin.placement().shard.begin, padding_of(layer));
  const Shards parts = trained_parts(cuts_of(layer), groups_, range.gradients.numel());
  const FlatRange own = parts[static_cast<std::size_t>(groups_.replica.rank())];
  OneBitMean mean = OneBitMean::start(groups_.replica, groups_[Axis::kTensor], sent, parts);
  if (!sign_updates_.empty()) average_signs(sign_updates_.back());
  sign_updates_.push_back({step, sign_round_.with(step), std::move(pin), std::move(found),
                           std::move(range), own, std::move(mean)});
  constexpr std::size_t kOnTheirWay = 3;
  if (sign_updates_.size() == kOnTheirWay) finish_first_sign_update();
}

void StageMachine::average_signs(SignUpdate& update) {
  const at::Tensor error =
      update.range.slots.at(kServerErrorSlot).narrow(0, update.own.begin, update.own.size());
  update.mean.add_average(error);
  clear(error, update.pin.placement().shard.begin + update.own.begin,
        padding_of(update.pin.layer()));
  update.mean.send_average(error);
}

void StageMachine::finish_first_sign_update() {
  SignUpdate& first = sign_updates_.front();
  if (sign_updates_.size() == 1) average_signs(first);  // the others were when the next was sent
  const at::Tensor direction = first.range.gradients;   // which are not read again
  first.mean.finish(direction);
  clear(direction, first.pin.placement().shard.begin, padding_of(first.pin.layer()));
  move_by_mean(first.round, first.step, std::move(first.pin), std::move(first.found),
               std::move(first.range));
  sign_updates_.pop_front();
}

void StageMachine::finish_sign_updates() {
  while (!sign_updates_.empty()) finish_first_sign_update();
}

}  // namespace strata
