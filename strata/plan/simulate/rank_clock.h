/// Simulates a rank: a machine that performs a program by advancing time by the cost of each
/// action.
///
/// Units  seconds from the start of the step.
#pragma once

#include "strata/plan/simulate/launch_clock.h"
#include "strata/plan/simulate/shared_clock.h"
#include "strata/plan/simulate/tier_clock.h"
#include "strata/schedule/execute.h"

namespace strata {

class RankClock : public Machine {
 public:
  RankClock(int rank, SharedClock& shared, TierClockState state);

  bool ready(const Action& action) override;
  void perform(const Action& action) override;

  double now() const { return now_; }
  /// when its host has enqueued everything so far
  double enqueued() const { return launches_.enqueued(); }
  const TierClockState& state() const { return tiers_.state(); }
  RankTimeline take_timeline();

 private:
  double end_of(const Action& action);
  void after_host(const Action& action, double begin);
  void await(const Action& action);
  double update(LayerRange layers);
  int kernels_of(const Action& action) const;
  double compute_seconds(const Action& action) const;
  void send(const Action& action);
  double transfer_seconds(const Action& action) const;
  void wait_for_fetch(double until);
  void wait_for_offload(double until);

  int rank_;
  SharedClock* shared_;
  double& now_;  // the clock of its device, which ranks on the same device share
  LaunchClock launches_;
  TierClock tiers_;
  // collectives of all ranks that this rank has reached and left
  std::size_t came_ = 0, left_ = 0;
  RankTimeline timeline_;
};

}  // namespace strata
