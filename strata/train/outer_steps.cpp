// The gradient buffers are free between steps: means are made there, in fp32 for any precision.
#include "strata/train/outer_steps.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "strata/comm/collectives.h"
#include "strata/device/account.h"
#include "strata/device/device.h"

namespace strata {
namespace {

constexpr std::int64_t kPiece = 1 << 18;  // elements

at::Tensor buffer_of(const Pin& pin) {
  return pin.flat_gradients().narrow(0, 0, pin.layout().own_numel);
}

// Calls f(weights, elements of the buffer) for pieces, because 16-bit weights are joined to fp32
// ones in memory of its own.
template <typename F>
void for_pieces(const MasterWeights& weights, const at::Tensor& buffer, F f) {
  const UnchargedScope uncharged;
  for (std::int64_t begin = 0; begin < buffer.numel(); begin += kPiece) {
    const std::int64_t numel = std::min(kPiece, buffer.numel() - begin);
    f(weights.narrow(begin, numel), buffer.narrow(0, begin, numel));
  }
}

void copy_out(const MasterWeights& weights, const at::Tensor& buffer) {
  for_pieces(weights, buffer,
             [](const MasterWeights& part, const at::Tensor& to) { to.copy_(part.whole()); });
}

void copy_in(const at::Tensor& buffer, const MasterWeights& weights) {
  for_pieces(weights, buffer,
             [](const MasterWeights& part, const at::Tensor& from) { part.assign(from); });
}

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

OuterSteps::OuterSteps(const OuterOptions& options, LayerStore& store, Group& replicas)
    : options_(options), store_(store), replicas_(replicas) {
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
    const Pin pin = store_.acquire(layer, kPinned);
    copy_out(pin.master().narrow(0, states.shared.numel()), states.shared);
  }
}

// Leaves the mean of the weights in the gradient buffer.
void OuterSteps::average(const Pin& pin) {
  at::Tensor mean = buffer_of(pin);
  copy_out(pin.master(), mean);
  if (replicas_.size() == 1) return;
  all_reduce_sum(replicas_, mean);
  mean.div_(replicas_.size());
}

// Running statistics, which have no gradients, become their mean.
void OuterSteps::step() {
  for (const auto& [layer, states] : states_) {
    if (store_.layout(layer).own_numel == 0) continue;
    const Pin pin = store_.acquire(layer, kPinned);
    average(pin);
    const at::Tensor mean = buffer_of(pin);
    if (states.shared.defined())
      outer_step(options_, {.mean = floats_of(mean.narrow(0, 0, states.shared.numel())),
                            .shared = floats_of(states.shared),
                            .momenta = floats_of(states.momenta)});
    copy_in(mean, pin.master());
  }
}

void OuterSteps::exchange_weights() {
  for (const auto& [layer, states] : states_) {
    if (store_.layout(layer).own_numel == 0) continue;
    const Pin pin = store_.acquire(layer, kPinned);
    for_pieces(pin.master(), buffer_of(pin),
               [](const MasterWeights& part, const at::Tensor& other) {
                 const at::Tensor weights = part.whole().clone();
                 part.assign(other);
                 other.copy_(weights);
               });
  }
  uses_mean_ = !uses_mean_;
}

void OuterSteps::use_mean() {
  if (uses_mean_) return;
  for (const auto& [layer, states] : states_)
    if (store_.layout(layer).own_numel > 0) average(store_.acquire(layer, kPinned));
  exchange_weights();
}

void OuterSteps::use_own() {
  if (uses_mean_) exchange_weights();
}

MasterWeights OuterSteps::own_weights(const Pin& pin) const {
  return uses_mean_ ? MasterWeights{buffer_of(pin)} : pin.master();
}

}  // namespace strata
