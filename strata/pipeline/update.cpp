// The end of a step: ties, replicas, the gradient norm, the optimizer. Part of StageMachine.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

#include "strata/base/measurement.h"
#include "strata/comm/collectives.h"
#include "strata/device/account.h"
#include "strata/nn/graph/moments.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/step_primitives.h"
#include "strata/pipeline/stage_machine.h"

namespace strata {
namespace {

// Index, in its layer, of the weight that takes part in a tie.
std::size_t tied_weight(const LayerLayout& layout, const std::string& tie) {
  for (std::size_t i = 0; i < layout.specs.size(); ++i)
    if (layout.specs[i].tie == tie) return i;
  throw InternalError(
      {.operation = "pipeline.tied_weight", .what = "no weight in the tie", .got = tie});
}

}  // namespace

void StageMachine::send_tied(const Action& action) {
  const auto span = device_span(TrackKind::kCommunicate, -1);
  const Tie& tie = model_.dataflow().ties[action.value];
  const bool is_gradient = action.op == Op::kSendTiedGradient;
  const Pin pin = store_.acquire(is_gradient ? action.consumer : tie.owner,
                                 is_gradient ? StateKind::kGradients : StateKind::kWeights);
  const std::size_t weight = tied_weight(pin.layout(), tie.name);
  // A copy, because the buffer itself will be overwritten.
  groups_[Axis::kPipeline].send(
      action.peer,
      {.kind = static_cast<std::int32_t>(action.op),
       .value = action.value,
       .consumer = action.consumer},
      (is_gradient ? pin.weight_gradient(weight) : pin.weights()[weight].detach()).clone());
}

void StageMachine::receive_tied(const Action& action) {
  const auto span = device_span(TrackKind::kCommunicate, -1);
  const bool is_gradient = action.op == Op::kReceiveTiedGradient;
  const Op send = is_gradient ? Op::kSendTiedGradient : Op::kSendTiedWeight;
  at::Tensor tensor =
      groups_[Axis::kPipeline].receive(action.peer, {.kind = static_cast<std::int32_t>(send),
                                                     .value = action.value,
                                                     .consumer = action.consumer});
  if (is_gradient) {
    tables_.received_ties[{action.value, action.consumer}] = std::move(tensor);
    return;
  }
  const Pin pin = store_.acquire(action.consumer, StateKind::kWeights);
  const std::string& tie = model_.dataflow().ties[action.value].name;
  pin.weights()[tied_weight(pin.layout(), tie)].detach().copy_(tensor);
}

// Adds the gradients of all uses to the owner's, in ascending layer order.
void StageMachine::add_ties(const Action& action) {
  const Tie& tie = model_.dataflow().ties[action.value];
  const Pin owner = store_.acquire(tie.owner, StateKind::kGradients);
  const auto span = device_span(TrackKind::kCompute, tie.owner);
  at::Tensor sum = owner.weight_gradient(tied_weight(owner.layout(), tie.name));
  for (const int user : tie.users) {
    if (is_local(user)) {
      const Pin pin = store_.acquire(user, StateKind::kGradients);
      sum.add_(pin.weight_gradient(tied_weight(pin.layout(), tie.name)));
    } else {
      sum.add_(tables_.received_ties.at({action.value, user}));
      tables_.received_ties.erase({action.value, user});
    }
  }
}

const LayerCuts& StageMachine::cuts_of(int layer) {
  const auto known = cuts_.find(layer);
  if (known != cuts_.end()) return known->second;
  return cuts_.emplace(layer, cut_layer(model_.layout(layer).own_numel, plan_.shards()))
      .first->second;
}

void StageMachine::reduce_gradients(const Action& action) {
  const int layer = action.layers.begin;
  const auto span = device_span(TrackKind::kCommunicate, layer);
  Pin pin = store_.acquire(layer, StateKind::kGradients);
  const bool sequence = model_.split().sequence;
  if (keeps_gradients()) {
    if (sequence) add_partial_gradients(groups_[Axis::kTensor], pin);
    return;
  }
  const auto last_of_step = static_cast<int>(inputs_.micro_batches.size()) - 1;
  reductions_.push_back({.layer = layer,
                         .gradients = GradientReduction::start(
                             groups_, std::move(pin), cuts_of(layer), sequence,
                             sends_signs() ? AddedOver::kShardGroup : AddedOver::kReplicas),
                         .first = action.micro_batch <= 0,
                         .last = action.micro_batch < 0 || action.micro_batch == last_of_step});
  // Other replicas get this rank's part of earlier layers' sums while it works on the next ones.
  // Ranks of later stages first send gradients to the stage before, which waits for them.
  if (groups_[Axis::kPipeline].rank() > 0) return;
  for (Reduction& earlier : reductions_)
    if (may_sum_early(earlier) && earlier.gradients.has_arrived()) sum_gradients(earlier);
}

// Whether other replicas gather this rank's part of the sum, and the sum stays on the rank's
// device, a CPU. On a GPU the stream waits for other ranks' gradients, so an early sum saves no
// time.
bool StageMachine::may_sum_early(const Reduction& reduction) const {
  return !reduction.gradients.is_summed() && reduction.last && groups_.replica.size() > 1 &&
         !sends_signs() && groups_.world.device().kind == DeviceKind::kCpu &&
         !store_.placement(reduction.layer).tiers.updates_on_host();
}

void StageMachine::sum_gradients(Reduction& reduction) {
  reduction.gradients.sum(store_.acquire_to_copy(reduction.layer, StateKind::kGradientShard),
                          reduction.first, reduction.last);
}

void StageMachine::await_gradients(const Action& action) {
  if (keeps_gradients()) return;
  const int layer = action.layers.begin;
  const auto span = device_span(TrackKind::kCommunicate, layer);
  const bool on_disk = store_.placement(layer).on_disk(StateKind::kGradientShard);
  // Sums all layers first, so that the sums of all layers travel at the same time.
  for (Reduction& reduction : reductions_)
    if (may_sum_early(reduction)) sum_gradients(reduction);
  const auto found = std::ranges::find(reductions_, layer, &Reduction::layer);
  STRATA_CHECK(found != reductions_.end(), "pipeline.await_gradients");
  const bool last = found->last;
  {
    if (!found->gradients.is_summed()) sum_gradients(*found);
    const Pin pin = found->gradients.finish();
    reductions_.erase(found);
    if (on_disk && last) add_squares_on_host(layer);
  }
  if (!on_disk) return;
  const Completion made = last ? host_squares_.at(layer).added
                               : store_.state(layer).pending_on(StateKind::kGradientShard);
  store_.written(layer, StateKind::kGradientShard, made);
}

// A gradient that lives on disk is written when its squares are summed.
void StageMachine::offload_gradients(int layer) {
  {
    const Pin pin = store_.acquire_unwaited(layer, StateKind::kGradientShard);
    store_.release(layer, StateKind::kGradients);
    add_squares_on_host(layer);
  }
  if (store_.placement(layer).on_disk(StateKind::kGradientShard))
    store_.written(layer, StateKind::kGradientShard, host_squares_.at(layer).added);
}

namespace {

// The elements whose squares a tensor-parallel rank counts: all for the first rank, for the others
// those that the ranks divide.
std::vector<FlatRange> counted(const LayerLayout& layout, int tp_rank) {
  if (tp_rank == 0) return {{0, layout.trained_numel}};
  std::vector<FlatRange> ranges;
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    if (!place.borrowed && layout.specs[i].split.axis >= 0 &&
        layout.specs[i].statistic == Statistic::kNone)
      ranges.push_back({place.offset, place.offset + place.numel});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](FlatRange a, FlatRange b) { return a.begin < b.begin; });
  return ranges;
}

// A replica adds the blocks of its own part and zeros elsewhere, so the sums are exact and in block
// order. `gradients`: of the layer's shard.
void part_squares(const LayerLayout& layout, FlatRange part, FlatRange shard, int tp_rank,
                  const at::Tensor& gradients, const at::Tensor& blocks) {
  step_primitives(gradients.device().type())
      .block_sums(gradients.narrow(0, part.begin - shard.begin, part.size()), part,
                  counted(layout, tp_rank), blocks);
}

}  // namespace

// Runs on the host's executor as soon as the gradient has arrived, so that after the last one only
// its squares are missing from the norm.
void StageMachine::add_squares_on_host(int layer) {
  const Pin pin = store_.acquire_unwaited(layer, StateKind::kGradientShard);
  const UnchargedScope uncharged;  // numbers of the step
  const at::Tensor blocks =
      at::empty({num_blocks(pin.layout().own_numel)}, host_options(at::kDouble));
  Completion added = host_updates_->submit(
      [this, layer, blocks, &layout = pin.layout(), part = part_of(layer),
       shard = pin.placement().shard, gradients = pin.gradient_shard()] {
        const double begin = now_seconds();
        const ThreadPoolScope scope(*host_threads_);
        part_squares(layout, part, shard, groups_[Axis::kTensor].rank(), gradients, blocks);
        if (track_trace_) track_trace_->add({TrackKind::kUpdate, layer, begin, now_seconds()});
      },
      store_.pending(pin));
  host_squares_[layer] = {blocks, std::move(added)};
}

void StageMachine::sum_squares_of(int layer, const at::Tensor& blocks) {
  if (updates_on_host(layer)) {
    const HostSquares& squares = host_squares_.at(layer);
    store_.wait(layer, StateKind::kGradientShard, squares.added);
    blocks.copy_(squares.blocks);
    return;
  }
  const double began = now_seconds();
  const Pin pin = store_.acquire(layer, StateKind::kGradientShard);
  const auto span = device_span(TrackKind::kCompute, layer);
  const FlatRange part = sends_signs() ? pin.placement().shard : part_of(layer);
  part_squares(pin.layout(), part, pin.placement().shard, groups_[Axis::kTensor].rank(),
               pin.gradient_shard(), blocks);
  // An update by signs waits for other ranks, so it is not measured.
  if (!sends_signs()) layer_times_.add_update(layer, now_seconds() - began);
}

// Other ranks read a gradient in place until they have finished their own reductions.
void StageMachine::filter_gradients() {
  if (filter_ == nullptr) return;
  groups_.world.barrier();
  std::vector<Pin> pins;
  std::vector<at::Tensor> gradients;
  for (const int layer : store_.layers()) {
    pins.push_back(store_.acquire(layer, StateKind::kGradientShard));
    gradients.push_back(pins.back().gradient_shard());
    groups_.world.before_write(gradients.back());
  }
  filter_->filter(gradients);
}

void StageMachine::reduce_norm_and_loss() {
  filter_gradients();
  layer_times_.end_step();  // of the previous step
  std::vector<LayerBlocks> layers;
  std::int64_t count = 0;
  for (const int layer : store_.layers()) {
    const std::int64_t blocks = num_blocks(store_.layout(layer).own_numel);
    layers.push_back({.begin = count, .end = count + blocks, .target = layer});
    count += blocks;
    if (updates_on_host(layer) && !host_squares_.contains(layer)) add_squares_on_host(layer);
  }
  const at::Tensor blocks = step_end_.blocks(count);
  for (const LayerBlocks& layer : layers)
    sum_squares_of(static_cast<int>(layer.target),
                   blocks.narrow(0, layer.begin, layer.end - layer.begin));
  host_squares_.clear();
  const auto span =
      device_span(groups_.world.size() > 1 ? TrackKind::kCommunicate : TrackKind::kCompute, -1);
  if (sends_signs()) {
    // The root mean square over shard groups of the norm that the sum of all gradients has if the
    // sums of all groups are equal.
    blocks.mul_(groups_.replica.size());
    step_end_.end_apart(blocks, std::move(layers), loss_.sum);
  } else {
    step_end_.end(blocks, std::move(layers), loss_.sum);
  }
  store_.end_offload();
}

bool StageMachine::updates_on_host(int layer) const {
  return plan_.decisions().tiers[layer].updates_on_host();
}

void StageMachine::update(const Action& action) {
  if (optimizer_->sends_signs(update_number(step_end_.known())) || optimizer_->has_trust_ratios())
    return update_with_others(action.layers);
  std::optional<BegunUpdate> begun;
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (store_.layout(layer).own_numel == 0) continue;
    if (updates_on_host(layer)) {
      update_on_host(layer);
      continue;
    }
    const double began = now_seconds();
    if (step_end_.known().skip == 0) {  // otherwise the device decides itself
      if (!begun) begun = optimizer_->begin_update(step_end_.scalars(), groups_.world.device());
      const ColumnStatistics found = find_statistics(layer);
      update_shard(acquire_to_update(layer), *begun, found);
    }
    layer_times_.add_update(layer, now_seconds() - began);
    start_gather(layer);
  }
}

// Updates that need what other ranks send during the update: signs, or sums of squares.
void StageMachine::update_with_others(LayerRange layers) {
  const StepScalars& scalars = step_end_.known();
  const bool by_signs = optimizer_->sends_signs(update_number(scalars));
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    if (store_.layout(layer).own_numel == 0) continue;
    if (scalars.skip != 0) {
      start_gather(layer);
    } else if (by_signs) {
      update_by_signs(sign_step(), layer);
    } else {
      begin_ratio_update(layer);
    }
  }
}

// If the replicas have updated shards of whole weights, they exchange these.
void StageMachine::start_gather(int layer) {
  if (!plan_.shards()[layer].gathers_weights()) return;
  Pin pin = store_.acquire(layer, StateKind::kWeights);
  AllGather gather = AllGather::start(groups_.shard, pin.weight_shard(), cuts_of(layer).shards,
                                      pin.flat_weights());
  gathers_.emplace(layer, std::pair(std::move(pin), std::move(gather)));
}

// Moments of all replicas are added in rank order, so all get the same result.
StageMachine::ColumnStatistics StageMachine::find_statistics(int layer) {
  const LayerLayout& layout = store_.layout(layer);
  ColumnStatistics found(layout.specs.size());
  const UnchargedScope uncharged;  // numbers of the step
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    if (layout.specs[i].statistic != Statistic::kMean) continue;
    at::Tensor moments = store_.acquire(layer, StateKinds()).moments(i).clone();
    if (groups_.weights.size() > 1) {
      const at::Tensor all = all_gather(groups_.weights, moments.unsqueeze(0), 0);
      moments = all[0].clone();
      for (int replica = 1; replica < groups_.weights.size(); ++replica)
        add_moments(moments, all[replica]);
    }
    STRATA_CHECK(layout.specs.at(i + 1).statistic == Statistic::kVariance,
                 "pipeline.find_statistics");
    found[i] = mean_of(moments);
    found[i + 1] = unbiased_variance_of(moments);
  }
  return found;
}

namespace {

// The statistics of a shard. `found`: those of its layer, one per weight.
std::vector<StatisticRange> statistics_of(const Pin& pin, const std::vector<at::Tensor>& found) {
  const LayerLayout& layout = pin.layout();
  const FlatRange shard = pin.placement().shard;
  std::vector<StatisticRange> ranges;
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    const std::int64_t begin = std::max(shard.begin, place.offset);
    const std::int64_t end = std::min(shard.end, place.offset + place.numel);
    if (!found[i].defined() || begin >= end) continue;
    const MasterWeights master = pin.master();
    STRATA_CHECK(!master.split() && !pin.rounded().defined(), "pipeline.statistics_of");
    const at::Tensor values = master.weights.narrow(0, begin - shard.begin, end - begin);
    ranges.push_back({values,
                      found[i].narrow(0, begin - place.offset, end - begin).to(values.device()),
                      layout.specs[i].momentum});
  }
  return ranges;
}

void move_statistics(const std::vector<StatisticRange>& ranges, const StepScalars& scalars) {
  for (const StatisticRange& range : ranges)
    step_primitives(range.values.device().type()).move_statistic(range, scalars);
}

}  // namespace

// The trained elements of the shard.
UpdateRange StageMachine::update_range(const Pin& pin) const {
  const FlatRange shard = pin.placement().shard;
  const auto before = [&](std::int64_t end) {
    return std::clamp<std::int64_t>(end - shard.begin, 0, shard.size());
  };
  const std::int64_t trained = before(pin.layout().trained_numel);
  const MasterWeights master = pin.master().narrow(0, trained);
  std::vector<at::Tensor> slots = pin.slots();
  for (at::Tensor& slot : slots) slot = slot.narrow(0, 0, trained);
  const at::Tensor rounded = pin.rounded();
  return {.weights = master.weights,
          .gradients = pin.gradient_shard().narrow(0, 0, trained),
          .slots = std::move(slots),
          .decay_numel = before(pin.layout().decay_numel),
          .rounded = rounded.defined() ? rounded.narrow(0, 0, trained) : rounded,
          .remainder = master.remainder};
}

Pin StageMachine::acquire_to_update(int layer) {
  Pin pin = store_.acquire(
      layer, StateKind::kGradientShard | StateKind::kOptimizer | StateKind::kWeightShard);
  groups_.world.before_write(pin.weight_shard());  // which peers have gathered
  return pin;
}

void StageMachine::update_shard(const Pin& pin, const BegunUpdate& step,
                                const ColumnStatistics& found) {
  const bool whole = has_hidden_matrices(pin.layer());  // other ranks need this one's part
  if (pin.placement().shard.size() == 0 && !whole) return;
  const auto span = device_span(TrackKind::kCompute, pin.layer());
  if (whole) {
    update_with_matrices(pin, update_range(pin), step);
  } else {
    optimizer_->update(update_range(pin), step);
  }
  move_statistics_of(pin, found);
}

void StageMachine::move_statistics_of(const Pin& pin, const ColumnStatistics& found) {
  move_statistics(statistics_of(pin, found), step_end_.scalars());
}

// Starts the update only: the next fetch of the weights waits for it, the rank does not.
void StageMachine::update_on_host(int layer) {
  const StepScalars step = step_end_.read();
  if (step.skip != 0) return;
  const ColumnStatistics found = find_statistics(layer);
  const StateKinds kinds = StateKind::kOptimizer | StateKind::kWeightShard;
  Completion updated;
  {
    const Pin pin = store_.acquire_unwaited(layer, kinds | StateKind::kGradientShard);
    if (pin.placement().shard.size() == 0) return;
    updated = host_updates_->submit(
        [this, layer, range = update_range(pin), statistics = statistics_of(pin, found), step] {
          const double begin = now_seconds();
          const ThreadPoolScope scope(*host_threads_);
          optimizer_->update(range, optimizer_->begin_update(step, Device{}));
          move_statistics(statistics, step);
          if (track_trace_) track_trace_->add({TrackKind::kUpdate, layer, begin, now_seconds()});
        },
        store_.pending(pin));
  }
  store_.read_until(layer, StateKind::kGradientShard, updated);
  store_.written(layer, kinds, updated);
}

void StageMachine::gather_weights(const Action& action) {
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (updates_on_host(layer)) {
      gather_from_host(layer);
      continue;
    }
    const auto found = gathers_.find(layer);
    STRATA_CHECK(found != gathers_.end(), "pipeline.gather_weights");
    const auto span = device_span(TrackKind::kCommunicate, layer);
    found->second.second.finish();
    gathers_.erase(found);
  }
}

void StageMachine::gather_from_host(int layer) {
  const Pin pin = store_.acquire_to_copy(layer, StateKind::kWeightShard | StateKind::kWeights);
  const FlatRange shard = pin.placement().shard;
  at::Tensor own = pin.flat_weights().narrow(0, shard.begin, shard.size());
  groups_.world.before_write(own);
  if (pin.shards_travel()) {
    pin.bring_shard(StateKind::kWeightShard, 0, own);
  } else {
    own.copy_(pin.weight_shard());
  }
  AllGather::start(groups_.shard, own, cuts_of(layer).shards, pin.flat_weights()).finish();
}

}  // namespace strata
