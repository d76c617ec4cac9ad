/// Is a rank whose work is to let time pass: a machine that performs a program by what each action costs.
///
/// Units  seconds from the start of the step.
#pragma once

#include "strata/plan/lane_clock.h"
#include "strata/plan/launch_clock.h"
#include "strata/plan/shared_clock.h"
#include "strata/schedule/execute.h"

namespace strata {

class RankClock : public Machine {
 public:
  RankClock(int rank, SharedClock& shared, LaneState state);

  bool ready(const Action& action) override;
  void perform(const Action& action) override;

  double now() const { return now_; }
  double given() const { return launches_.given(); }  ///< by its host
  const LaneState& state() const { return lanes_.state(); }
  RankTimeline take_timeline();

 private:
  double end_of(const Action& action);
  void behind_host(const Action& action, double begin);
  void await(const Action& action);
  double update(LayerRange layers);
  int kernels_of(const Action& action) const;
  double compute_seconds(const Action& action) const;
  double transfer_seconds(const Action& action) const;
  void wait_for_fetch(double until);
  void wait_for_offload(double until);

  int rank_;
  SharedClock* shared_;
  double& now_;  // its device's: ranks that share one move it in turn
  LaunchClock launches_;
  LaneClock lanes_;
  std::size_t came_ = 0, left_ = 0;  // collectives of all ranks
  RankTimeline timeline_;
};

}  // namespace strata
