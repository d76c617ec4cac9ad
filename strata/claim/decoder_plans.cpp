#include "strata/claim/decoder_plans.h"

#include "strata/base/units.h"
#include "strata/plan/ledger/ledger.h"

namespace strata {

std::string grouped(std::int64_t count) {
  std::string text = std::to_string(count);
  for (int place = static_cast<int>(text.size()) - 3; place > 0; place -= 3)
    text.insert(place, ",");
  return text;
}

StrataPlan shown_plan(const DecoderTraining& training, const DecoderPlan& found,
                      const PublishedRate& published) {
  const double peak = training.machine.device.peak;
  const auto samples = static_cast<double>(training.samples);
  // Model operations leave recomputes out, whatever the paper counts.
  const double counted = published.recomputes ? step_flops(training.shape, samples, false) /
                                                    step_flops(training.shape, samples, true)
                                              : 1;
  return {
      .model = format_count(parameters_of(training.shape)) + ", " +
               grouped(found.mesh.axes.size()) + " " + published.device + ", " +
               grouped(training.samples) + " samples",
      .mesh = mesh_text(found.mesh),
      .schedule = schedule_text(found.mesh),
      .bytes = static_cast<double>(peak_bytes(found.plan.ledger)),
      .device_bytes = static_cast<double>(training.machine.device.bytes.count),
      .step_seconds = found.plan.simulation.step_seconds,
      .utilisation = flops_utilisation(found.plan),
      .published_utilisation = peak > 0 ? published.published_flops_a_second * counted / peak : 0};
}

StrataPlan strata_plan(const DecoderTraining& training, int ranks, const PublishedRate& published) {
  return shown_plan(training, search_meshes(training, ranks), published);
}

}  // namespace strata
