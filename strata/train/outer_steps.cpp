#include "strata/train/outer_steps.h"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <span>

#include "strata/device/device.h"

namespace strata {
namespace {

std::span<float> floats_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {x.data_ptr<float>(), static_cast<std::size_t>(x.numel())};
}

}  // namespace

StepOutcome outcome_of_replicas(const StepOutcome& outcome, std::int64_t own, std::int64_t all,
                                Group& replicas) {
  if (replicas.size() == 1) return outcome;
  double sums[] = {outcome.loss * static_cast<double>(own),
                   outcome.gradient_norm * outcome.gradient_norm, outcome.skipped ? 1.0 : 0.0};
  replicas.all_reduce(sums);
  return {.loss = sums[0] / static_cast<double>(all),
          .gradient_norm = std::sqrt(sums[1] / replicas.size()),
          .skipped = sums[2] > 0};
}

OuterSteps::OuterSteps(const OuterOptions& options, LayerStore& store, MeanWeights& weights)
    : options_(options), store_(store), weights_(weights) {
  const std::size_t kept = outer_states(options).size();
  for (const int layer : store.layers()) {
    const std::int64_t numel = store.layout(layer).trained_numel;
    States& states = states_[layer];
    if (kept > 0) states.shared = at::zeros({numel}, host_options(at::kFloat));
    if (kept > 1) states.momenta = at::zeros({numel}, host_options(at::kFloat));
  }
}

void OuterSteps::restart() {
  for (const auto& [layer, states] : states_) {
    if (!states.shared.defined()) continue;
    const Pin pin = store_.acquire(layer, MeanWeights::kPinned);
    copy_weights(pin.master().narrow(0, states.shared.numel()), states.shared);
  }
}

// Running statistics, which have no gradients, become their mean.
void OuterSteps::step() {
  for (const auto& [layer, states] : states_) {
    if (store_.layout(layer).own_numel == 0) continue;
    const Pin pin = store_.acquire(layer, MeanWeights::kPinned);
    const at::Tensor mean = weights_.average(pin);
    if (states.shared.defined())
      outer_step(options_, {.mean = floats_of(mean.narrow(0, 0, states.shared.numel())),
                            .shared = floats_of(states.shared),
                            .momenta = floats_of(states.momenta)});
    copy_weights(mean, pin.master());
  }
}

}  // namespace strata
