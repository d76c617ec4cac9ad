/// Computes when the work of a rank that overlaps with its compute ends: copy streams to and from
/// the device, the update executor of the host, the disk, and the channel between replicas. Each
/// runs one task at a time.
///
/// Units  seconds from the start of the step; `now` is the rank's own clock.
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "strata/plan/simulate/shared_clock.h"

namespace strata {

inline constexpr int kUpdateBuffers =
    3;  ///< staging buffers of disk/staging.h: one is read, one updated, one written

/// What one step leaves unfinished for the next, in seconds of its own clock.
struct TierClockState {
  /// per executor or copy stream: when it has completed its queue
  std::array<double, kNumTrackKinds> free{};
  /// staging buffers of updates from disk: when each is free
  std::array<double, kUpdateBuffers> update_staging{};
  /// the same of gradients
  std::array<double, kUpdateBuffers> gradient_staging{};
  std::vector<double> weights_at;  ///< per layer, 0: not fetched; empty: none is
  std::vector<double> updated_at;  ///< per layer: its update on the host

  /// the same state relative to a next step that starts at `seconds`
  TierClockState after(double seconds) const;
};

class TierClock {
 public:
  /// `draws_communication`: exchanges between replicas are recorded as events, because a device
  /// runs them on a stream.
  TierClock(const SharedClock& shared, TierClockState state, bool draws_communication)
      : shared_(&shared), state_(std::move(state)), draws_communication_(draws_communication) {}

  // ---- Start an operation at `now`
  void fetch(int layer, double now);
  void reduce(int layer, double now);
  void offload(int layer, double from);
  void offload_activations(int layer, double now, double scale);
  void fetch_activations(int layer, int micro_batch, double now, double scale);
  /// An update of a layer that the host updates, before the norm or after it.
  void update(int layer, double now, bool early);
  /// When the updated weights have arrived on all replicas.
  double gather(LayerRange layers, double now);
  void add(TrackKind track, int layer, double begin, double end);

  // ---- When operations end, at the earliest `now`
  double weights_of(LayerRange layers, double now) const;  ///< includes the weights of ties
  double own_weights_of(LayerRange layers, double now) const;
  double inputs_of(LayerRange layers, int micro_batch, double now) const;
  double reduced(LayerRange layers, double now) const;
  /// end of the last offload of gradients
  double offloads_end() const { return offloads_end_; }
  double activations_end() const {
    return activations_end_;
  }  ///< end of the last offload of activations

  const TierClockState& state() const { return state_; }
  std::vector<TrackEvent> take_events() { return std::move(events_); }

 private:
  double run(TrackKind track, int layer, double from, double seconds);
  double exchange(int layer, const std::vector<double>& seconds, double from);
  double& of_layer(std::vector<double>& ends, int layer) const;

  const SharedClock* shared_;
  TierClockState state_;
  bool draws_communication_;
  double channel_free_ = 0;  // when the last collective between replicas ends
  bool gathered_ = false;    // any layer, in this step
  double offloads_end_ = 0;  // of the offloads started so far
  double activations_end_ = 0;
  // (layer, micro-batch): when the inputs are back from the host
  std::map<std::pair<int, int>, double> inputs_at_;
  std::vector<double> reduced_at_;  // per layer, 0: not reduced; empty: none is
  // per layer: when its gradient is on the host, or on the disk if it lives there
  std::vector<double> landed_at_;
  std::vector<int> updated_early_;  // layers, before the norm
  std::vector<TrackEvent> events_;
};

}  // namespace strata
