#include "strata/plan/simulate/tier_clock.h"

#include <algorithm>

namespace strata {
namespace {

double latest(LayerRange layers, const std::vector<double>& ends, double now) {
  if (ends.empty()) return now;
  for (int l = layers.begin; l < layers.end; ++l) now = std::max(now, ends[l]);
  return now;
}

}  // namespace

TierClockState TierClockState::after(double seconds) const {
  TierClockState state = *this;
  const auto shift = [&](double& at) { at = std::max(0.0, at - seconds); };
  for (double& at : state.free) shift(at);
  for (double& at : state.update_staging) shift(at);
  for (double& at : state.gradient_staging) shift(at);
  for (double& at : state.weights_at) shift(at);
  for (double& at : state.updated_at) shift(at);
  return state;
}

void TierClock::fetch(int layer, double now) {
  const std::vector<double>& exchanged = shared_->collective_seconds->fetch;
  const LayerTierSeconds* host = shared_->on_host(layer);
  double& at = of_layer(state_.weights_at, layer);
  const double latency = shared_->collective_seconds->gather_latency;
  if (host == nullptr) {
    at = exchange(layer, exchanged, now) + latency;
    return;
  }
  double from = std::max(now, of_layer(state_.updated_at, layer));
  if (host->fetch_read_seconds > 0)
    from = run(TrackKind::kDiskRead, layer, from, host->fetch_read_seconds);
  if (!host->comes_back) from = run(TrackKind::kToDevice, layer, from, host->fetch_seconds);
  at = !exchanged.empty() && exchanged[layer] > 0 ? exchange(layer, exchanged, from) + latency
                                                  : from;
}

void TierClock::reduce(int layer, double now) {
  of_layer(reduced_at_, layer) = exchange(layer, shared_->collective_seconds->reduce, now) +
                                 shared_->collective_seconds->reduce_latency;
}

void TierClock::offload(int layer, double from) {
  const LayerTierSeconds* host = shared_->on_host(layer);
  if (host == nullptr) return;
  const std::size_t buffers = host->gradient_buffers;
  if (buffers > 0 && updated_early_.size() >= buffers)
    from = std::max(from, state_.updated_at[updated_early_[updated_early_.size() - buffers]]);
  const bool to_disk = host->gradient_write_seconds > 0;
  double& buffer =
      *std::min_element(state_.gradient_staging.begin(), state_.gradient_staging.end());
  if (to_disk) from = std::max(from, buffer);
  offloads_end_ = run(TrackKind::kToHost, layer, from, host->offload_seconds);
  double& landed = of_layer(landed_at_, layer);
  landed = offloads_end_;
  if (to_disk)
    landed = buffer = run(TrackKind::kDiskWrite, layer, landed, host->gradient_write_seconds);
}

void TierClock::offload_activations(int layer, double now, double scale) {
  if (shared_->tier_seconds->empty()) return;
  const LayerTierSeconds& spent = (*shared_->tier_seconds)[layer];
  activations_end_ = run(TrackKind::kToHost, layer, now, spent.activations_offload_seconds * scale);
}

void TierClock::fetch_activations(int layer, int micro_batch, double now, double scale) {
  if (shared_->tier_seconds->empty()) return;
  const LayerTierSeconds& spent = (*shared_->tier_seconds)[layer];
  inputs_at_[{layer, micro_batch}] =
      run(TrackKind::kToDevice, layer, now, spent.activations_fetch_seconds * scale);
}

void TierClock::update(int layer, double now, bool early) {
  const LayerTierSeconds* host = shared_->on_host(layer);
  if (early) updated_early_.push_back(layer);
  double& at = of_layer(state_.updated_at, layer);
  const double ready = std::max(now, of_layer(landed_at_, layer));
  if (host->update_write_seconds > 0) {
    double& buffer = *std::min_element(state_.update_staging.begin(), state_.update_staging.end());
    double begin = std::max(now, buffer);
    if (host->gradient_write_seconds > 0) begin = std::max(begin, ready);
    const double read = run(TrackKind::kDiskRead, layer, begin, host->update_read_seconds);
    at = run(TrackKind::kUpdate, layer, std::max(ready, read), host->update_seconds);
    buffer = run(TrackKind::kDiskWrite, layer, at, host->update_write_seconds);
    if (host->weights_on_disk) at = buffer;
  } else {
    at = run(TrackKind::kUpdate, layer, ready, host->update_seconds);
  }
  if (host->comes_back) at = run(TrackKind::kToDevice, layer, at, host->fetch_seconds);
}

double TierClock::gather(LayerRange layers, double now) {
  const std::vector<double>& gather = shared_->collective_seconds->gather;
  double seconds = 0;
  for (int l = layers.begin; !gather.empty() && l < layers.end; ++l) seconds += gather[l];
  const double begin = std::max(latest(layers, state_.updated_at, now), channel_free_);
  // All layers were updated before the first is gathered, so their latencies overlap.
  if (!gathered_) seconds += shared_->collective_seconds->gather_latency;
  gathered_ = true;
  const double end = begin + seconds;
  if (draws_communication_) add(TrackKind::kCommunicate, layers.begin, begin, end);
  for (int l = layers.begin; l < layers.end; ++l)
    if (shared_->on_host(l) != nullptr) of_layer(state_.updated_at, l) = end;
  return end;
}

void TierClock::add(TrackKind track, int layer, double begin, double end) {
  if (end > begin) events_.push_back({track, layer, begin, end});
}

double TierClock::weights_of(LayerRange layers, double now) const {
  now = own_weights_of(layers, now);
  if (shared_->owners.empty()) return now;
  for (int l = layers.begin; l < layers.end; ++l)
    for (const int owner : shared_->owners[l]) now = own_weights_of({owner, owner + 1}, now);
  return now;
}

double TierClock::own_weights_of(LayerRange layers, double now) const {
  return latest(layers, state_.weights_at, now);
}

double TierClock::inputs_of(LayerRange layers, int micro_batch, double now) const {
  for (int l = layers.begin; l < layers.end; ++l)
    if (const auto at = inputs_at_.find({l, micro_batch}); at != inputs_at_.end())
      now = std::max(now, at->second);
  return now;
}

double TierClock::reduced(LayerRange layers, double now) const {
  return latest(layers, reduced_at_, now);
}

// Starts when the executor has completed its earlier work.
double TierClock::run(TrackKind track, int layer, double from, double seconds) {
  double& free = state_.free[static_cast<int>(track)];
  const double begin = std::max(free, from);
  free = begin + seconds;
  events_.push_back({track, layer, begin, free});
  return free;
}

// Starts when the channel has completed its earlier exchanges.
double TierClock::exchange(int layer, const std::vector<double>& seconds, double from) {
  const double begin = std::max(channel_free_, from);
  channel_free_ = begin + (seconds.empty() ? 0 : seconds[layer]);
  if (draws_communication_) add(TrackKind::kCommunicate, layer, begin, channel_free_);
  return channel_free_;
}

double& TierClock::of_layer(std::vector<double>& ends, int layer) const {
  if (ends.empty()) ends.resize(shared_->costs->layers.size());
  return ends[layer];
}

}  // namespace strata
