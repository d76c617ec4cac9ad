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

DecoderTraining selene_training(const DecoderShape& shape, std::int64_t samples,
                                DecoderKernels kernels) {
  const bool published = kernels == DecoderKernels::kPublished;
  return {.shape = shape,
          .samples = samples,
          .machine = claim_machine("a100-selene"),
          .kernels = kernels,
          .convention = published ? "mixed" : "split",
          .scatters_messages = published};
}

StrataPlan shown_plan(const DecoderTraining& training, const DecoderPlan& found,
                      const PublishedRate& published) {
  const double peak = training.machine.device.peak;
  const auto samples = static_cast<double>(training.samples);
  // Model operations leave recomputes out, whatever the paper counts.
  const double counted = published.recomputes ? step_flops(training.shape, samples, false) /
                                                    step_flops(training.shape, samples, true)
                                              : 1;
  const double all_peak = peak * found.mesh.axes.size();
  const double theirs = published.simulated_seconds * all_peak;
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
      .published_utilisation = peak > 0 ? published.published_flops_a_second * counted / peak : 0,
      .their_mesh_utilisation =
          theirs > 0 ? step_flops(training.shape, samples, false) / theirs : 0};
}

StrataPlan strata_plan(const DecoderTraining& training, int ranks, const PublishedRate& published) {
  return shown_plan(training, search_meshes(training, ranks), published);
}

}  // namespace strata
