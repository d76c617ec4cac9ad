#include "strata/plan/simulate/lane_clock.h"

#include <algorithm>

namespace strata {
namespace {

double latest(LayerRange layers, const std::vector<double>& ends, double now) {
  if (ends.empty()) return now;
  for (int l = layers.begin; l < layers.end; ++l) now = std::max(now, ends[l]);
  return now;
}

}  // namespace

LaneState LaneState::after(double seconds) const {
  LaneState state = *this;
  const auto shift = [&](double& at) { at = std::max(0.0, at - seconds); };
  for (double& at : state.free) shift(at);
  for (double& at : state.slabs) shift(at);
  for (double& at : state.gradient_slabs) shift(at);
  for (double& at : state.weights_at) shift(at);
  for (double& at : state.updated_at) shift(at);
  return state;
}

void LaneClock::fetch(int layer, double now) {
  const std::vector<double>& exchanged = shared_->collective_seconds->fetch;
  const LayerLanes* lanes = shared_->lanes_of(layer);
  double& at = of_layer(state_.weights_at, layer);
  if (lanes == nullptr) {
    at = exchange(layer, exchanged, now);
    return;
  }
  double from = std::max(now, of_layer(state_.updated_at, layer));
  if (lanes->fetch_read_seconds > 0)
    from = run(LaneKind::kDiskRead, layer, from, lanes->fetch_read_seconds);
  if (!lanes->comes_back) from = run(LaneKind::kToDevice, layer, from, lanes->fetch_seconds);
  at = !exchanged.empty() && exchanged[layer] > 0 ? exchange(layer, exchanged, from) : from;
}

void LaneClock::reduce(int layer, double now) {
  of_layer(reduced_at_, layer) = exchange(layer, shared_->collective_seconds->reduce, now);
}

void LaneClock::offload(int layer, double from) {
  const LayerLanes* lanes = shared_->lanes_of(layer);
  if (lanes == nullptr) return;
  const std::size_t buffers = lanes->gradient_buffers;
  if (buffers > 0 && updated_early_.size() >= buffers)
    from = std::max(from, state_.updated_at[updated_early_[updated_early_.size() - buffers]]);
  const bool to_disk = lanes->gradient_write_seconds > 0;
  double& slab = *std::min_element(state_.gradient_slabs.begin(), state_.gradient_slabs.end());
  if (to_disk) from = std::max(from, slab);
  offloads_end_ = run(LaneKind::kToHost, layer, from, lanes->offload_seconds);
  double& landed = of_layer(landed_at_, layer);
  landed = offloads_end_;
  if (to_disk)
    landed = slab = run(LaneKind::kDiskWrite, layer, landed, lanes->gradient_write_seconds);
}

void LaneClock::offload_activations(int layer, double now, double scale) {
  if (shared_->lanes->empty()) return;
  const LayerLanes& lanes = (*shared_->lanes)[layer];
  activations_end_ = run(LaneKind::kToHost, layer, now, lanes.activations_offload_seconds * scale);
}

void LaneClock::fetch_activations(int layer, int micro_batch, double now, double scale) {
  if (shared_->lanes->empty()) return;
  const LayerLanes& lanes = (*shared_->lanes)[layer];
  inputs_at_[{layer, micro_batch}] =
      run(LaneKind::kToDevice, layer, now, lanes.activations_fetch_seconds * scale);
}

void LaneClock::update(int layer, double now, bool early) {
  const LayerLanes* lanes = shared_->lanes_of(layer);
  if (early) updated_early_.push_back(layer);
  double& at = of_layer(state_.updated_at, layer);
  const double ready = std::max(now, of_layer(landed_at_, layer));
  if (lanes->update_write_seconds > 0) {
    double& slab = *std::min_element(state_.slabs.begin(), state_.slabs.end());
    double begin = std::max(now, slab);
    if (lanes->gradient_write_seconds > 0) begin = std::max(begin, ready);
    const double read = run(LaneKind::kDiskRead, layer, begin, lanes->update_read_seconds);
    at = run(LaneKind::kUpdate, layer, std::max(ready, read), lanes->update_seconds);
    slab = run(LaneKind::kDiskWrite, layer, at, lanes->update_write_seconds);
    if (lanes->weights_on_disk) at = slab;
  } else {
    at = run(LaneKind::kUpdate, layer, ready, lanes->update_seconds);
  }
  if (lanes->comes_back) at = run(LaneKind::kToDevice, layer, at, lanes->fetch_seconds);
}

double LaneClock::gather(LayerRange layers, double now) {
  const std::vector<double>& gather = shared_->collective_seconds->gather;
  double seconds = 0;
  for (int l = layers.begin; !gather.empty() && l < layers.end; ++l) seconds += gather[l];
  const double begin = std::max(latest(layers, state_.updated_at, now), channel_free_);
  const double end = begin + seconds;
  if (draws_communication_) add(LaneKind::kCommunicate, layers.begin, begin, end);
  for (int l = layers.begin; l < layers.end; ++l)
    if (shared_->lanes_of(l) != nullptr) of_layer(state_.updated_at, l) = end;
  return end;
}

void LaneClock::add(LaneKind lane, int layer, double begin, double end) {
  if (end > begin) events_.push_back({lane, layer, begin, end});
}

double LaneClock::weights_of(LayerRange layers, double now) const {
  now = own_weights_of(layers, now);
  if (shared_->owners.empty()) return now;
  for (int l = layers.begin; l < layers.end; ++l)
    for (const int owner : shared_->owners[l]) now = own_weights_of({owner, owner + 1}, now);
  return now;
}

double LaneClock::own_weights_of(LayerRange layers, double now) const {
  return latest(layers, state_.weights_at, now);
}

double LaneClock::inputs_of(LayerRange layers, int micro_batch, double now) const {
  for (int l = layers.begin; l < layers.end; ++l)
    if (const auto at = inputs_at_.find({l, micro_batch}); at != inputs_at_.end())
      now = std::max(now, at->second);
  return now;
}

double LaneClock::reduced(LayerRange layers, double now) const {
  return latest(layers, reduced_at_, now);
}

// Starts when the executor has completed its earlier work.
double LaneClock::run(LaneKind lane, int layer, double from, double seconds) {
  double& free = state_.free[static_cast<int>(lane)];
  const double begin = std::max(free, from);
  free = begin + seconds;
  events_.push_back({lane, layer, begin, free});
  return free;
}

// Starts when the channel has completed its earlier exchanges.
double LaneClock::exchange(int layer, const std::vector<double>& seconds, double from) {
  const double begin = std::max(channel_free_, from);
  channel_free_ = begin + (seconds.empty() ? 0 : seconds[layer]);
  if (draws_communication_) add(LaneKind::kCommunicate, layer, begin, channel_free_);
  return channel_free_;
}

double& LaneClock::of_layer(std::vector<double>& ends, int layer) const {
  if (ends.empty()) ends.resize(shared_->costs->layers.size());
  return ends[layer];
}

}  // namespace strata
