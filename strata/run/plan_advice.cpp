#include "strata/run/plan_advice.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "strata/base/units.h"
#include "strata/measure/processor.h"
#include "strata/run/plan_request.h"
#include "strata/run/recipe_machine.h"

namespace strata {
namespace {

// By layer, independent of the rank's slice; a tied weight counts at its owner.
std::vector<double> parameters_of(const Sequential& model) {
  std::vector<double> parameters(model.num_layers());
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const LayerLayout& layout = model.layout(layer);
    for (std::size_t i = 0; i < layout.specs.size(); ++i) {
      if (layout.placements[i].borrowed) continue;
      double numel = 1;
      for (const std::int64_t size : layout.specs[i].shape) numel *= static_cast<double>(size);
      parameters[layer] += numel;
    }
  }
  return parameters;
}

}  // namespace

std::string estimate_text(const Recipe& recipe, const MachineProfile& machine) {
  const bool gpu = recipe.device_kind() == DeviceKind::kCuda;
  const double rate = flops_of(machine, recipe.train.precision);
  const std::string text = "seconds    from " + format_count(rate) + "FLOP/s of " +
                           precision_name(recipe.train.precision) + " products, ";
  if (machine.device.fp32 > 0) return text + "as strata doctor has measured here\n";
  return text + (gpu ? "assumed, not a GPU's: --machine h100 plans by published rates\n"
                     : "assumed: strata doctor measures this machine's\n");
}

std::string precision_advice(const Recipe& recipe, bool measure) {
  if (recipe.device == DeviceChoice::kCuda) return "";
  const ProcessorIdentity processor = ProcessorIdentity::of_this_machine();
  std::optional<PrecisionRates> rates = load_rates(default_rates_file(), processor);
  // Other precisions are compared with fp32, so advice for fp32 needs no measurement.
  if (!rates && measure && recipe.train.precision != at::kFloat) {
    rates = measure_precision_rates(processor.cores);
    save_rates(default_rates_file(), processor, *rates);
  }
  if (!rates) return "";
  const std::string slow = slow_precision_text(recipe.train.precision, *rates);
  return slow.empty() ? precision_name(recipe.train.precision) + "; this processor is fast in " +
                            fastest_text(*rates)
                      : slow;
}

std::vector<TierDepth> largest_depths(const Recipe& recipe, const MachineProfile& machine,
                                      const ParameterBytes* convention,
                                      const SharedDevices& devices) {
  const Sequential model = model_of(recipe);
  PlanRequest request = with_convention(plan_request(recipe, model, machine), convention);
  for (CostTable& costs : request.costs) costs.devices = devices;
  return largest_depths(request, parameters_of(model));
}

}  // namespace strata
