// The plan is simulated again with the seconds measured in training and its own seconds of
// collectives; any remaining difference from the measured step is not caused by the layers.
#include "strata/measure/step_miss.h"

#include <cmath>

#include "strata/base/units.h"
#include "strata/measure/trained_costs.h"
#include "strata/plan/simulate/communication.h"

namespace strata {
namespace {

// Smaller differences are within the variation between runs.
constexpr double kSmall = 0.05;

std::string signed_seconds(double seconds) {
  return (seconds < 0 ? "-" : "+") + format_seconds(std::fabs(seconds));
}

}  // namespace

StepMiss step_miss(const Plan& plan, const std::vector<LayerSeconds>& trained,
                   double measured_seconds) {
  const CostTable costs = with_trained_seconds(plan, trained);
  const Simulation replayed =
      simulate(plan.schedule(), plan.steps.dataflow(), plan.decisions().partition, costs,
               collective_seconds(plan.costs, plan.steps.shards(), plan.mesh),
               tier_seconds(plan, costs), plan.recorded);
  return {plan.simulation.step_seconds, replayed.step_seconds, measured_seconds};
}

std::string text_of(const StepMiss& miss) {
  const double all = miss.measured_seconds - miss.predicted_seconds;
  if (miss.predicted_seconds <= 0 || miss.measured_seconds <= 0) return "";
  const std::string parts = signed_seconds(miss.probe_seconds()) + " in the layers' own spans, " +
                            signed_seconds(miss.machine_seconds()) + " in waiting and noise";
  if (std::fabs(all) <= kSmall * miss.predicted_seconds)
    return "The step differs by " + signed_seconds(all) + ", within " +
           format_double(100 * kSmall, 0) + " % of the prediction: " + parts;
  // The cause is the part with the largest contribution in the direction of the difference.
  const double way = all < 0 ? -1 : 1;
  const bool probe = way * miss.probe_seconds() > way * miss.machine_seconds();
  return "The step differs by " + signed_seconds(all) + " from the prediction, because of the " +
         (probe ? "probe" : "machine") + ": " + parts;
}

}  // namespace strata
