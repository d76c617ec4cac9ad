/// Attributes the difference between the predicted and the measured seconds of a step to the probe
/// or to the machine.
///
/// Simulates the plan again with the seconds that its layers took in training. The change of the
/// prediction is the probe's error; the rest is waiting, other processes, and everything that the
/// simulation omits.
///
/// Units  seconds.
#pragma once

#include <string>
#include <vector>

#include "strata/pipeline/layer_seconds.h"
#include "strata/plan/search/planner.h"

namespace strata {

struct StepMiss {
  double predicted_seconds = 0;
  double replayed_seconds = 0;  ///< simulated with the layers' measured seconds
  double measured_seconds = 0;

  double probe_seconds() const { return replayed_seconds - predicted_seconds; }
  double machine_seconds() const { return measured_seconds - replayed_seconds; }
};

/// `trained`: by layer; parts that were not measured keep the plan's seconds.
StepMiss step_miss(const Plan& plan, const std::vector<LayerSeconds>& trained,
                   double measured_seconds);

/// One sentence without its full stop; empty if nothing was predicted or measured.
std::string text_of(const StepMiss& miss);

}  // namespace strata
