// ATen's fused kernels update a whole flat range at once; torch::optim would loop over weights. They
// take one decay a call, so a range is split where its decayed weights end, and give other bits for
// cuts that are no multiple of 16 elements, so such a cut is refused.
#include "strata/optim/optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "strata/base/errors.h"
#include "strata/device/parallel.h"

namespace strata {
namespace {

constexpr std::int64_t kUnit = 16;               // elements: ATen's vectors begin there
constexpr std::int64_t kLeastUpdated = 1 << 15;  // elements: below, a second thread costs more
constexpr std::int64_t kInCache = 1 << 16;       // elements: with their slots a megabyte

UpdateRange narrow(const UpdateRange& range, std::int64_t begin, std::int64_t end) {
  const auto cut = [&](const at::Tensor& flat) { return flat.narrow(0, begin, end - begin); };
  UpdateRange part{.weights = cut(range.weights), .gradients = cut(range.gradients)};
  for (const at::Tensor& slot : range.slots) part.slots.push_back(cut(slot));
  if (range.rounded.defined()) part.rounded = cut(range.rounded);
  return part;
}

// Calls `update(part, decayed)` for pieces of [0, decay_numel) and [decay_numel, numel), on the rank's
// threads.
void for_each_decay_range(
    const UpdateRange& range, std::size_t num_slots,
    const std::function<void(const UpdateRange& part, bool decayed)>& update) {
  const std::int64_t numel = range.weights.numel();
  STRATA_CHECK_EQ(range.gradients.numel(), numel, "optim.update");
  STRATA_CHECK_EQ(range.slots.size(), num_slots, "optim.update");
  for (const at::Tensor& slot : range.slots) STRATA_CHECK_EQ(slot.numel(), numel, "optim.update");
  STRATA_CHECK(range.decay_numel >= 0 && range.decay_numel <= numel, "optim.update");
  STRATA_CHECK_EQ(range.decay_numel % kUnit, 0, "optim.update");
  if (range.rounded.defined()) STRATA_CHECK_EQ(range.rounded.numel(), numel, "optim.update");

  // What is done before and behind the update meets its elements in the cache.
  const bool alone = range.gradient_factor == 1 && !range.rounded.defined();
  const auto update_piece = [&](std::int64_t begin, std::int64_t end, bool decayed) {
    const std::int64_t step = alone ? end - begin : kInCache;
    for (std::int64_t first = begin; first < end; first += step) {
      const UpdateRange part = narrow(range, first, std::min(first + step, end));
      if (range.gradient_factor != 1) part.gradients.mul_(range.gradient_factor);
      update(part, decayed);
      if (part.rounded.defined()) part.rounded.copy_(part.weights);
    }
  };
  const auto in_pieces = [&](std::int64_t begin, std::int64_t end, bool decayed) {
    parallel_ranges(
        end - begin, kLeastUpdated,
        [&](std::int64_t from, std::int64_t to) {
          update_piece(begin + from, begin + to, decayed);
        },
        kUnit);
  };
  in_pieces(0, range.decay_numel, true);
  in_pieces(range.decay_numel, numel, false);
}

// Decoupled weight decay, bias-corrected moments.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(OptimizerOptions options) : options_(std::move(options)) {}

  std::vector<std::string> slot_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  void update(const UpdateRange& range, std::int64_t step, double learning_rate) const override {
    const at::Tensor step_tensor =
        at::full({}, static_cast<double>(step), range.weights.options().dtype(at::kFloat));
    for_each_decay_range(range, slot_names().size(), [&](const UpdateRange& part, bool decayed) {
      at::_fused_adamw_({part.weights}, {part.gradients}, {part.slots[0]}, {part.slots[1]}, {},
                        {step_tensor}, learning_rate, options_.beta1, options_.beta2,
                        decayed ? options_.weight_decay : 0.0, options_.epsilon, /*amsgrad=*/false,
                        /*maximize=*/false);
    });
  }

 private:
  OptimizerOptions options_;
};

// Momentum (none: no slot) and an L2 penalty.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(OptimizerOptions options) : options_(std::move(options)) {}

  std::vector<std::string> slot_names() const override {
    if (options_.momentum == 0) return {};
    return {"momentum_buffer"};
  }

  void update(const UpdateRange& range, std::int64_t /*step*/,
              double learning_rate) const override {
    for_each_decay_range(range, slot_names().size(), [&](const UpdateRange& part, bool decayed) {
      // Slots start at zero, so a first step is like any other, also after a resume.
      at::_fused_sgd_({part.weights}, {part.gradients}, part.slots,
                      decayed ? options_.weight_decay : 0.0, options_.momentum, learning_rate,
                      /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false,
                      /*is_first_step=*/false);
    });
  }

 private:
  OptimizerOptions options_;
};

}  // namespace

const char* name_of(OptimizerKind kind) { return kind == OptimizerKind::kSgd ? "sgd" : "adamw"; }

void describe(OptionSet& set, const std::string& prefix, OptimizerOptions& options) {
  // A decay rate of 1 would never forget, and divides by zero in AdamW's bias correction.
  constexpr double kBelowOne = 0.999999;
  set.add(prefix + ".kind", &options.kind, named({OptimizerKind::kAdamW, OptimizerKind::kSgd}),
          {.help = "How gradients change the weights."});
  set.add(prefix + ".learning_rate", &options.learning_rate,
          {.help = "Peak learning rate, reached at the end of the warm-up.", .minimum = 0});
  set.add(prefix + ".beta1", &options.beta1,
          {.help = "AdamW: share of the mean gradient that a step keeps.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = kBelowOne});
  set.add(prefix + ".beta2", &options.beta2,
          {.help = "AdamW: share of the mean squared gradient that a step keeps.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = kBelowOne});
  set.add(prefix + ".epsilon", &options.epsilon,
          {.help = "AdamW: added to the root of the mean squared gradient.", .minimum = 0});
  set.add(prefix + ".weight_decay", &options.weight_decay,
          {.help = "Pull of matrices towards zero: AdamW's own, for sgd the L2 penalty.",
           .minimum = 0});
  set.add(prefix + ".momentum", &options.momentum,
          {.help = "Sgd: share of the velocity that a step keeps; 0 keeps no velocity.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = kBelowOne});
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  if (options.kind == OptimizerKind::kSgd) return std::make_unique<Sgd>(options);
  return std::make_unique<AdamW>(options);
}

}  // namespace strata
