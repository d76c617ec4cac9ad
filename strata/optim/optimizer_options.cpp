#include "strata/optim/optimizer_options.h"

#include <algorithm>
#include <cmath>

#include "strata/base/enum_names.h"
#include "strata/optim/zero_one_intervals.h"

namespace strata {

using kernels::UpdateRule;

const char* name_of(OptimizerKind kind) {
  using enum OptimizerKind;
  static constexpr EnumNames<OptimizerKind> kNames{{kAdamW, "adamw"},
                                                   {kSgd, "sgd"},
                                                   {kAdagrad, "adagrad"},
                                                   {kMuon, "muon"},
                                                   {kLamb, "lamb"},
                                                   {kOneBitAdam, "onebit-adam"},
                                                   {kZeroOneAdam, "zero-one-adam"},
                                                   {kOneBitLamb, "onebit-lamb"}};
  return kNames[kind];
}

namespace {

void describe_trust_ratios(OptionSet& set, const std::string& prefix, OptimizerOptions& options) {
  constexpr double kMostRatio = 1e30;
  set.add(prefix + ".min_coeff", &options.min_coeff,
          {.help = "Lamb, onebit-lamb: smallest trust ratio (norm of a weight / norm of its update "
                   "before the learning rate).",
           .unit = "ratio",
           .minimum = 0,
           .maximum = kMostRatio});
  set.add(prefix + ".max_coeff", &options.max_coeff,
          {.help = "Lamb, onebit-lamb: largest trust ratio.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = kMostRatio});
  set.add(prefix + ".coeff_beta", &options.coeff_beta,
          {.help = "Onebit-lamb: fraction of the mean trust ratio that an update keeps until "
                   "freeze_step.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 0.999999});
  set.add(prefix + ".factor_min", &options.factor_min,
          {.help = "Onebit-lamb: the smallest factor of the mean trust ratio after freeze_step.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 1});
  set.add(prefix + ".factor_max", &options.factor_max,
          {.help = "Onebit-lamb: the largest factor of the mean trust ratio after freeze_step.",
           .unit = "ratio",
           .minimum = 1,
           .maximum = kMostRatio});
  set.add(prefix + ".factor_threshold", &options.factor_threshold,
          {.help = "Onebit-lamb: the most that an update changes the factor, relative to it.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 1});
}

}  // namespace

void describe(OptionSet& set, const std::string& prefix, OptimizerOptions& options) {
  // A decay rate of 1 would keep the first gradients for ever and divide by zero in AdamW's bias
  // correction.
  constexpr double kBelowOne = 0.999999;
  // An element whose gradients are all 0 is divided by epsilon alone; states are fp32.
  constexpr double kSmallestEpsilon = 1e-30;
  constexpr double kLargest = 1e30;
  constexpr double kMostSteps = 1e12;
  set.add(
      prefix + ".kind", &options.kind, all_named<OptimizerKind>(),
      {.help =
           "How gradients change the weights; muon: hidden matrices by Muon, the others by "
           "AdamW; lamb: AdamW, but each weight with decay moves in proportion to its norm; "
           "onebit-adam: AdamW, whose replicas send one bit a weight instead of "
           "gradients after freeze_step; zero-one-adam: the same except in growing "
           "intervals, and nothing in more and more steps after freeze_step; onebit-lamb: lamb, "
           "whose replicas send one bit a weight after freeze_step."});
  set.add(prefix + ".learning_rate", &options.learning_rate,
          {.help = "Peak learning rate, reached at the end of the warm-up.",
           .minimum = 0,
           .maximum = kLargest});
  set.add(prefix + ".beta1", &options.beta1,
          {.help = "AdamW: fraction of the mean gradient that a step keeps.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = kBelowOne});
  set.add(prefix + ".beta2", &options.beta2,
          {.help = "AdamW: fraction of the mean squared gradient that a step keeps.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = kBelowOne});
  set.add(prefix + ".epsilon", &options.epsilon,
          {.help = "AdamW: added to the root of the mean squared gradient; adagrad: of their sum.",
           .minimum = kSmallestEpsilon,
           .maximum = kLargest});
  set.add(prefix + ".weight_decay", &options.weight_decay,
          {.help = "Pull of matrices towards zero: AdamW's and Muon's own, for sgd and adagrad the "
                   "L2 penalty.",
           .minimum = 0,
           .maximum = kLargest});
  set.add(
      prefix + ".momentum", &options.momentum,
      {.help =
           "Sgd and muon: fraction of the velocity that a step keeps; 0: sgd keeps no velocity.",
       .unit = "ratio",
       .minimum = 0,
       .maximum = kBelowOne});
  describe_trust_ratios(set, prefix, options);
  set.add(prefix + ".freeze_step", &options.freeze_step,
          {.help = "Onebit-adam and onebit-lamb: updates as AdamW or LAMB, before the mean squared "
                   "gradients stay as they are and replicas send one bit a weight; 15 to 25 % of "
                   "all steps. "
                   "Zero-one-adam: the last update that may sum gradients.",
           .unit = "steps",
           .minimum = 1,
           .maximum = kMostSteps});
  set.add(prefix + ".refresh_doubling", &options.refresh_doubling,
          {.help = "Zero-one-adam: sums of gradients, which refresh the mean squared gradients, "
                   "after which the steps between two of them double.",
           .minimum = 1,
           .maximum = kMostSteps});
  set.add(prefix + ".local_doubling", &options.local_doubling,
          {.help = "Zero-one-adam: steps after freeze_step after which the steps between two "
                   "synchronisations of the replicas double.",
           .unit = "steps",
           .minimum = 1,
           .maximum = kMostSteps});
  set.add(prefix + ".local_most", &options.local_most,
          {.help = "Zero-one-adam: the most steps from one synchronisation to the next.",
           .unit = "steps",
           .minimum = 1,
           .maximum = kMostSteps});
}

UpdateRule rule_of(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kMuon:
    case OptimizerKind::kLamb:
    case OptimizerKind::kOneBitAdam:
    case OptimizerKind::kZeroOneAdam:
    case OptimizerKind::kOneBitLamb:
      return UpdateRule::kAdamW;
    case OptimizerKind::kAdagrad:
      return UpdateRule::kAdagrad;
    case OptimizerKind::kSgd:
      break;
  }
  return options.momentum == 0 ? UpdateRule::kSgd : UpdateRule::kSgdMomentum;
}

std::vector<std::string> slot_names(UpdateRule rule) {
  switch (rule) {
    case UpdateRule::kAdamW:
      return {"exp_avg", "exp_avg_sq"};
    case UpdateRule::kSgd:
      return {};
    case UpdateRule::kSgdMomentum:
      return {"momentum_buffer"};
    case UpdateRule::kAdagrad:
      return {"sum"};
  }
  return {};
}

kernels::UpdateConstants constants_of(const OptimizerOptions& options) {
  return {.rule = rule_of(options),
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay,
          .momentum = options.momentum};
}

kernels::UpdateStep update_step(const kernels::UpdateConstants& constants, std::int64_t step,
                                double learning_rate, double gradient_factor) {
  const auto n = static_cast<double>(step);
  return kernels::update_step(
      constants, {1 - std::pow(constants.beta1, n), std::sqrt(1 - std::pow(constants.beta2, n))},
      learning_rate, gradient_factor);
}

kernels::UpdateStep update_step(const OptimizerOptions& options, std::int64_t step,
                                double learning_rate, double gradient_factor) {
  const kernels::UpdateConstants constants = constants_of(options);
  const auto updates = static_cast<double>(step);
  const auto of_variances = static_cast<double>(variance_updates(options, step));
  return kernels::update_step(constants,
                              {1 - std::pow(constants.beta1, updates),
                               std::sqrt(1 - std::pow(constants.beta2, of_variances))},
                              learning_rate, gradient_factor);
}

std::int64_t variance_updates(const OptimizerOptions& options, std::int64_t update) {
  if (freezes_variances(options.kind)) return std::min(update, options.freeze_step);
  return options.kind == OptimizerKind::kZeroOneAdam ? count_refreshes(options, update) : update;
}

}  // namespace strata
