#include "strata/optim/optimizer.h"

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/device/element_of.h"
#include "strata/device/parallel.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/optim/one_bit_lamb.h"
#include "strata/optim/step_end.h"
#include "strata/optim/step_primitives.h"
#include "strata/optim/zero_one_intervals.h"

namespace strata {
namespace {

// elements; for fewer, a second thread does not pay
constexpr std::int64_t kLeastUpdated = 1 << 15;
// elements: threads never write to the same cache line
constexpr std::int64_t kLine = 64;

// Checks a tensor that the kernels read or write.
void check_flat(const at::Tensor& flat, std::int64_t numel) {
  STRATA_CHECK(flat.is_contiguous(), "optim.update");
  STRATA_CHECK_EQ(flat.numel(), numel, "optim.update");
}

float* floats_of(const at::Tensor& flat, std::int64_t numel) {
  check_flat(flat, numel);
  STRATA_CHECK_EQ(flat.scalar_type(), at::kFloat, "optim.update");
  return flat.data_ptr<float>();
}

std::uint16_t* halves_of(const at::Tensor& flat, at::ScalarType type, std::int64_t numel) {
  check_flat(flat, numel);
  STRATA_CHECK_EQ(flat.scalar_type(), type, "optim.update");
  return static_cast<std::uint16_t*>(flat.data_ptr());
}

}  // namespace

kernels::UpdateArrays update_arrays(const UpdateRange& range, int num_slots) {
  const std::int64_t numel = range.weights.numel();
  STRATA_CHECK_EQ(static_cast<int>(range.slots.size()), num_slots, "optim.update");
  for (const at::Tensor& other : {range.gradients, range.rounded, range.remainder})
    STRATA_CHECK(!other.defined() || other.device() == range.weights.device(), "optim.update");
  STRATA_CHECK(range.decay_numel >= 0 && range.decay_numel <= numel, "optim.update");
  STRATA_CHECK(!range.remainder.defined() || !range.rounded.defined(), "optim.update");
  check_flat(range.gradients, numel);
  kernels::UpdateArrays arrays{.gradients = range.gradients.const_data_ptr(),
                               .gradient_element = element_of(range.gradients),
                               .decay_numel = range.decay_numel};
  if (range.remainder.defined()) {
    arrays.split = {.high = halves_of(range.weights, at::kBFloat16, numel),
                    .low = halves_of(range.remainder, at::kShort, numel)};
  } else {
    arrays.weights = floats_of(range.weights, numel);
  }
  for (std::size_t i = 0; i < range.slots.size(); ++i) {
    STRATA_CHECK(range.slots[i].device() == range.weights.device(), "optim.update");
    arrays.slots[i] = floats_of(range.slots[i], numel);
  }
  if (range.rounded.defined()) {
    check_flat(range.rounded, numel);
    arrays.rounded_element = element_of(range.rounded);
    STRATA_CHECK(arrays.rounded_element != kernels::Element::kFp32, "optim.update");
    arrays.rounded = range.rounded.data_ptr();
  }
  return arrays;
}

UpdateRange narrowed(const UpdateRange& range, FlatRange part) {
  const auto of = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, part.begin, part.size()) : tensor;
  };
  UpdateRange narrow{
      .weights = of(range.weights),
      .gradients = of(range.gradients),
      .decay_numel = std::clamp<std::int64_t>(range.decay_numel - part.begin, 0, part.size()),
      .rounded = of(range.rounded),
      .remainder = of(range.remainder)};
  for (const at::Tensor& slot : range.slots) narrow.slots.push_back(of(slot));
  return narrow;
}

void update_on_threads(const kernels::UpdateStep& step, const kernels::UpdateArrays& arrays,
                       std::int64_t numel) {
  parallel_ranges(
      numel, kLeastUpdated,
      [&](std::int64_t begin, std::int64_t end) { kernels::update(step, arrays, {begin, end}); },
      kLine);
}

std::vector<std::string> Optimizer::slot_names() const {
  std::vector<std::string> names = strata::slot_names(rule_of(options_));
  if (moves_by_signs(options_.kind)) names.insert(names.end(), {kWorkerError, kServerError});
  if (options_.kind == OptimizerKind::kZeroOneAdam) names.emplace_back(kSharedWeight);
  if (freezes_trust_ratios()) names.emplace_back(kFreshVariance);
  return names;
}

bool Optimizer::sends_signs(std::int64_t update) const {
  if (freezes_variances(options_.kind)) return update > options_.freeze_step;
  return options_.kind == OptimizerKind::kZeroOneAdam && !refreshes_variances(options_, update);
}

bool Optimizer::synchronises(std::int64_t update) const {
  return options_.kind != OptimizerKind::kZeroOneAdam || strata::synchronises(options_, update);
}

// Weights with trust ratios are not updated here (lamb.h).
void Optimizer::require_no_ratios(const UpdateRange& range) const {
  STRATA_CHECK(!has_trust_ratios() || range.decay_numel == 0, "optim.update");
}

// Without the errors of later updates.
UpdateRange Optimizer::with_slots_of_rule(UpdateRange range) const {
  if (!moves_by_signs(options_.kind)) return range;
  STRATA_CHECK_EQ(range.slots.size(), slot_names().size(), "optim.update");
  range.slots.resize(static_cast<std::size_t>(kernels::num_slots(rule_of(options_))));
  return range;
}

void Optimizer::update(const UpdateRange& range, std::int64_t step, double learning_rate,
                       double gradient_factor) const {
  require_no_ratios(range);
  const kernels::UpdateStep constants = update_step(options_, step, learning_rate, gradient_factor);
  STRATA_CHECK(range.weights.is_cpu(), "optim.update");
  update_on_threads(constants,
                    update_arrays(with_slots_of_rule(range), kernels::num_slots(constants.rule)),
                    range.weights.numel());
}

BegunUpdate Optimizer::begin_update(const StepScalars& scalars, Device device) const {
  return step_primitives(device.options(at::kByte).device().type())
      .begin_update(constants_of(options_), scalars, device);
}

void Optimizer::update(const UpdateRange& range, const BegunUpdate& step) const {
  require_no_ratios(range);
  STRATA_CHECK(step.constants.device() == range.weights.device(), "optim.update");
  if (options_.kind == OptimizerKind::kZeroOneAdam && step.scalars->skip == 0)  // on a CPU
    return update(range, update_number(*step.scalars), step.scalars->learning_rate,
                  step.scalars->factor);
  step_primitives(range.weights.device().type())
      .update(rule_of(options_), with_slots_of_rule(range), step);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  return std::make_unique<Optimizer>(options);
}

}  // namespace strata
