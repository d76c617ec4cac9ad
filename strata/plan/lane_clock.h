/// Tells when what a rank has beside its compute is done: lanes to and from its device, of its host's updates and
/// of its disk, and the channel of its replicas. Each does one thing after another.
///
/// Units  seconds from the start of the step; `now` is the rank's own clock.
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "strata/plan/shared_clock.h"

namespace strata {

inline constexpr int kUpdateSlabs =
    3;  ///< of disk/staging.h: one is read, one updated, one written

/// What one step leaves behind for the next, in seconds of its own clock.
struct LaneState {
  std::array<double, kNumLaneKinds> free{};  ///< per lane: when it has done what it was given
  std::array<double, kUpdateSlabs> slabs{};  ///< of updates from disk: when each is free
  std::vector<double> weights_at;            ///< per layer, 0: not fetched; empty: none is
  std::vector<double> updated_at;            ///< per layer: its update on the host

  LaneState after(double seconds) const;  ///< seen from a step that begins then
};

class LaneClock {
 public:
  /// `draws_communication`: what replicas exchange is among the events, for it is on a device's lane.
  LaneClock(const SharedClock& shared, LaneState state, bool draws_communication)
      : shared_(&shared), state_(std::move(state)), draws_communication_(draws_communication) {}

  // ---- Started behind `now`
  void fetch(int layer, double now);
  void reduce(int layer, double now);
  void offload(int layer, double from);
  void offload_activations(int layer, double now, double scale);
  void fetch_activations(int layer, int micro_batch, double now, double scale);
  /// Before the norm or behind it. Of a layer that the host updates.
  void update(int layer, double now, bool early);
  /// When updated weights are there on all replicas.
  double gather(LayerRange layers, double now);
  void add(LaneKind lane, int layer, double begin, double end);

  // ---- When they have ended, not before `now`
  double weights_of(LayerRange layers, double now) const;  ///< with those of ties
  double own_weights_of(LayerRange layers, double now) const;
  double inputs_of(LayerRange layers, int micro_batch, double now) const;
  double reduced(LayerRange layers, double now) const;
  double offloads_end() const { return offloads_end_; }  ///< of gradients
  double activations_end() const {
    return activations_end_;
  }  ///< of the last one's way to the host

  const LaneState& state() const { return state_; }
  std::vector<LaneEvent> take_events() { return std::move(events_); }

 private:
  double run(LaneKind lane, int layer, double from, double seconds);
  double exchange(int layer, const std::vector<double>& seconds, double from);
  double& of_layer(std::vector<double>& ends, int layer) const;

  const SharedClock* shared_;
  LaneState state_;
  bool draws_communication_;
  double channel_free_ = 0;  // when the last started collective of replicas ends
  double offloads_end_ = 0;  // of those that have been started
  double activations_end_ = 0;
  std::map<std::pair<int, int>, double> inputs_at_;  // (layer, micro-batch), back from the host
  std::vector<double> reduced_at_;                   // per layer, 0: not reduced; empty: none is
  std::vector<double> landed_at_;                    // per layer: its gradient, on the host
  std::vector<int> updated_early_;                   // layers, before the norm
  std::vector<LaneEvent> events_;
};

}  // namespace strata
