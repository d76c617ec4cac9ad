/// Says where the measured seconds of a step and the predicted ones part: in the probe, or in the
/// machine.
///
/// The plan is simulated once more with the seconds that its layers took while training. What that
/// moves the prediction by is the probe's miss; what then remains is waiting, other processes, and
/// all that the simulation leaves out.
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
  double replayed_seconds = 0;  ///< the plan with the layers' own spans
  double measured_seconds = 0;

  double probe_seconds() const { return replayed_seconds - predicted_seconds; }
  double machine_seconds() const { return measured_seconds - replayed_seconds; }
};

/// `trained`: by layer; parts that were not measured keep the plan's seconds.
StepMiss step_miss(const Plan& plan, const std::vector<LayerSeconds>& trained,
                   double measured_seconds);

/// One clause; empty if nothing was predicted or measured.
std::string text_of(const StepMiss& miss);

}  // namespace strata
