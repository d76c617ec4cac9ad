#include "strata/plan/simulate/rank_clock.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "strata/base/errors.h"
#include "strata/plan/simulate/shard_bytes.h"

namespace strata {

namespace {

// The kernels of a divided backward are split like its time.
int weight_launches(const LayerCost& layer) {
  if (layer.backward_seconds <= 0) return layer.backward_launches / 2;
  return static_cast<int>(
      std::lround(layer.backward_launches * layer.weight_seconds / layer.backward_seconds));
}

int launches_of(const LayerCost& layer, Op op) {
  switch (op) {
    case Op::kForward:
    case Op::kRecompute:
      return layer.forward_launches;
    case Op::kBackward:
      return layer.backward_launches;
    case Op::kBackwardInput:
      return layer.backward_launches - weight_launches(layer);
    case Op::kBackwardWeight:
      return weight_launches(layer);
    case Op::kUpdate:
      return layer.update_launches;
    case Op::kOffloadActivations:
    case Op::kFetchActivations:
    case Op::kSendActivation:
    case Op::kReceiveActivation:
    case Op::kSendGradient:
    case Op::kReceiveGradient:
    case Op::kSendTiedGradient:
    case Op::kReceiveTiedGradient:
    case Op::kAddTiedGradients:
    case Op::kPrefetchWeights:
    case Op::kReleaseWeights:
    case Op::kOffloadGradients:
    case Op::kReduceGradients:
    case Op::kAwaitGradients:
    case Op::kReduceNormAndLoss:
    case Op::kGatherWeights:
    case Op::kPrefetchRows:
    case Op::kFetchRows:
    case Op::kSendRowGradients:
    case Op::kSendTiedWeight:
    case Op::kReceiveTiedWeight:
      return 0;
  }
  STRATA_CHECK(false, "plan.launches_of");
}

}  // namespace

RankClock::RankClock(int rank, SharedClock& shared, TierClockState state)
    : rank_(rank),
      shared_(&shared),
      now_(shared.clock_of(rank)),
      launches_(shared.costs->launch,
                shared.recorded->empty() ? nullptr : &(*shared.recorded)[rank]),
      tiers_(shared, std::move(state), launches_.enqueues()) {}

RankTimeline RankClock::take_timeline() {
  timeline_.tracks = tiers_.take_events();
  timeline_.launches = launches_.one_by_one();
  return std::move(timeline_);
}

bool RankClock::ready(const Action& action) {
  if (is_receive(action.op)) return shared_->arrivals.count(message_key(action, rank_)) != 0;
  if (action.op != Op::kReduceNormAndLoss) return true;
  if (shared_->collectives.size() == left_) shared_->collectives.emplace_back();
  Collective& collective = shared_->collectives[left_];
  if (came_ == left_) {
    ++came_;
    ++collective.ranks;
    // The norm reads gradients where they are updated.
    wait_for_offload(tiers_.offloads_end());
    collective.last_seconds = std::max(collective.last_seconds, now_);
  }
  return collective.ranks == shared_->num_ranks;
}

void RankClock::perform(const Action& action) {
  if (!shared_->costs->devices.empty()) timeline_.turns.push_back(now_);
  if (is_compute(action.op)) wait_for_fetch(tiers_.weights_of(action.layers, now_));
  if (action.op == Op::kRecompute)
    wait_for_fetch(tiers_.inputs_of(action.layers, action.micro_batch, now_));
  const double begin = now_;
  if (is_receive(action.op)) await(action);
  now_ = end_of(action);
  const double worked = now_ - begin;
  if (launches_.enqueues()) after_host(action, begin);
  timeline_.events.push_back(event_of(action, begin));
  timeline_.events.back().end_seconds = now_;
  if (is_compute(action.op) || action.op == Op::kUpdate) timeline_.busy_seconds += worked;
  if (is_send(action.op)) send(action);
}

// A rank's messages leave one after another.
void RankClock::send(const Action& action) {
  const double seconds = transfer_seconds(action);
  double begin = now_, latency = 0;
  if (seconds > 0) {
    double& free = shared_->link_free[rank_];
    begin = std::max(free, now_);
    free = begin + seconds;
  }
  if (&shared_->clock_of(action.peer) != &now_) latency = shared_->costs->latency_seconds;
  shared_->arrivals[message_key(action, rank_)] = {launches_.enqueued(), begin,
                                                   begin + seconds + latency};
}

// Adjusts an action that started at `begin` and would end now to its host's launches.
void RankClock::after_host(const Action& action, double begin) {
  const int kernels = kernels_of(action);
  if (kernels == 0) return;
  const double work = now_ - begin;
  now_ = launches_.end_of(timeline_.events.size(), kernels, begin, work);
  timeline_.launch_wait_seconds += now_ - begin - work;
  tiers_.add(TrackKind::kCompute, action.layers.begin, now_ - work, now_);
}

int RankClock::kernels_of(const Action& action) const {
  int kernels = 0;
  for (int l = action.layers.begin; l < action.layers.end; ++l)
    if (action.op != Op::kUpdate || shared_->on_host(l) == nullptr)
      kernels += launches_of(shared_->costs->layers[l], action.op);
  return kernels;
}

// The host waits until the message was enqueued, the device until it has arrived.
void RankClock::await(const Action& action) {
  const Arrival& arrival = shared_->arrivals.at(message_key(action, rank_));
  launches_.wait(arrival.enqueued);
  if (launches_.enqueues())
    tiers_.add(TrackKind::kCommunicate, action.consumer, arrival.sent, arrival.seconds);
}

double RankClock::end_of(const Action& action) {
  const double overhead = shared_->costs->overhead_seconds;
  if (is_compute(action.op)) return now_ + compute_seconds(action) + overhead;
  if (is_receive(action.op)) {
    return std::max(now_, shared_->arrivals.at(message_key(action, rank_)).seconds) + overhead;
  }
  const auto [begin, end] = action.layers;
  const double scale = shared_->costs->scale(action.micro_batch);
  double seconds = 0;
  switch (action.op) {
    case Op::kPrefetchWeights:
      for (int l = begin; l < end; ++l) tiers_.fetch(l, now_);
      break;
    // In both directions each transfer waits for the previous offload.
    case Op::kOffloadActivations:
      wait_for_offload(tiers_.activations_end());
      tiers_.offload_activations(begin, now_, scale);
      break;
    case Op::kFetchActivations:
      wait_for_offload(tiers_.activations_end());
      tiers_.fetch_activations(begin, action.micro_batch, now_, scale);
      break;
    case Op::kReduceGradients:
      for (int l = begin; l < end; ++l) tiers_.reduce(l, now_);
      break;
    case Op::kAwaitGradients:  // where they live
      now_ = tiers_.reduced(action.layers, now_);
      for (int l = begin; l < end; ++l) tiers_.offload(l, now_);
      break;
    case Op::kOffloadGradients:
      wait_for_offload(tiers_.offloads_end());
      for (int l = begin; l < end; ++l) tiers_.offload(l, now_);
      break;
    case Op::kGatherWeights:
      return tiers_.gather(action.layers, now_) + overhead;
    case Op::kUpdate:
      seconds = update(action.layers);
      break;
    case Op::kSendTiedWeight: {
      const int owner = shared_->dataflow->ties[action.value].owner;
      now_ = tiers_.own_weights_of({owner, owner + 1}, now_);
      break;
    }
    case Op::kFetchRows:
      seconds = shared_->costs->rows.rank_seconds + shared_->rows_wait_seconds;
      break;
    case Op::kReduceNormAndLoss:
      // Other ranks on the same device may have passed it and done more.
      return std::max(now_, shared_->collectives[left_++].last_seconds) +
             shared_->collective_seconds->norm_latency + overhead;
    // Compute and receives have returned above.
    case Op::kForward:
    case Op::kRecompute:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kReceiveActivation:
    case Op::kReceiveGradient:
    case Op::kReceiveTiedGradient:
    case Op::kReceiveTiedWeight:
    // These take only the overhead of an action.
    case Op::kSendActivation:
    case Op::kSendGradient:
    case Op::kSendTiedGradient:
    case Op::kAddTiedGradients:
    case Op::kReleaseWeights:
    case Op::kPrefetchRows:
    case Op::kSendRowGradients:
      break;
  }
  return now_ + seconds + overhead;
}

// Returns the seconds on the rank's own clock.
double RankClock::update(LayerRange layers) {
  double seconds = 0;
  for (int l = layers.begin; l < layers.end; ++l) {
    if (shared_->on_host(l) != nullptr) {
      tiers_.update(l, now_, /*early=*/came_ == 0);
    } else {
      seconds += shared_->costs->layers[l].update_seconds;
    }
  }
  return shared_->times_as_long(rank_) * seconds;
}

double RankClock::compute_seconds(const Action& action) const {
  return shared_->layer_seconds(action.layers, action.op) *
         shared_->costs->scale(action.micro_batch) * shared_->times_as_long(rank_);
}

double RankClock::transfer_seconds(const Action& action) const {
  const CostTable& costs = *shared_->costs;
  if (&shared_->clock_of(action.peer) == &now_) return 0;  // the receiver reads it in place
  if (action.op == Op::kSendTiedGradient || action.op == Op::kSendTiedWeight) {
    return shared_->tie_seconds_per_byte *
           static_cast<double>(tied_bytes(costs.layers[action.consumer], action.op));
  }
  return costs.values[action.value].transfer_seconds * costs.scale(action.micro_batch);
}

void RankClock::wait_for_fetch(double until) {
  const double begin = std::exchange(now_, std::max(now_, until));
  timeline_.fetch_wait_seconds += now_ - begin;
}

void RankClock::wait_for_offload(double until) {
  const double begin = std::exchange(now_, std::max(now_, until));
  timeline_.offload_wait_seconds += now_ - begin;
}

}  // namespace strata
