/// Chooses an optimizer and its constants, and computes the constants of one update.
///
/// No torch: updates of raw memory need only this header and update_kernels.h.
#pragma once

#include <string>
#include <vector>

#include "strata/base/options.h"
#include "strata/optim/update_kernels.h"

namespace strata {

enum class OptimizerKind : std::uint8_t {
  kAdamW,
  kSgd,
  kAdagrad,
  kMuon,
  kLamb,
  kOneBitAdam,
  kZeroOneAdam,
  kOneBitLamb
};
/// "adamw", "sgd", "adagrad", "muon", "lamb", "onebit-adam", "zero-one-adam", "onebit-lamb"
const char* name_of(OptimizerKind kind);

/// Whether replicas send signs in every update after freeze_step, with frozen variances.
constexpr bool freezes_variances(OptimizerKind kind) {
  return kind == OptimizerKind::kOneBitAdam || kind == OptimizerKind::kOneBitLamb;
}

/// Whether replicas send signs (one_bit_adam.h).
constexpr bool moves_by_signs(OptimizerKind kind) {
  return freezes_variances(kind) || kind == OptimizerKind::kZeroOneAdam;
}

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
  // Of kLamb and kOneBitLamb: limits of the trust ratio.
  double min_coeff = 0.01;
  double max_coeff = 10;
  // Of kOneBitLamb (one_bit_lamb.h).
  double coeff_beta = 0.9;
  double factor_min = 0.5;
  double factor_max = 4;
  double factor_threshold = 0.1;
  /// Updates of kOneBitAdam as AdamW, and of kOneBitLamb as LAMB; the last that may refresh the
  /// variances of kZeroOneAdam.
  std::int64_t freeze_step = 100;
  // Of kZeroOneAdam (zero_one_intervals.h).
  std::int64_t refresh_doubling = 16;  ///< refreshes
  std::int64_t local_doubling = 1000;  ///< steps
  std::int64_t local_most = 16;        ///< steps
};

void describe(OptionSet& set, const std::string& prefix, OptimizerOptions& options);

/// Of weights other than the hidden matrices of Muon and those of LAMB with decay, and of updates
/// that sum gradients.
kernels::UpdateRule rule_of(const OptimizerOptions& options);

kernels::UpdateConstants constants_of(const OptimizerOptions& options);

/// Names of the slots in checkpoints, e.g. {"exp_avg", "exp_avg_sq"}.
std::vector<std::string> slot_names(kernels::UpdateRule rule);

/// The updates until this one, itself included, that have changed the mean squared gradients.
std::int64_t variance_updates(const OptimizerOptions& options, std::int64_t update);

/// `step` counts from 1; `learning_rate` is that of this step.
kernels::UpdateStep update_step(const kernels::UpdateConstants& constants, std::int64_t step,
                                double learning_rate, double gradient_factor = 1);
kernels::UpdateStep update_step(const OptimizerOptions& options, std::int64_t step,
                                double learning_rate, double gradient_factor = 1);

}  // namespace strata
