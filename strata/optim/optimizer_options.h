/// Chooses an optimizer and its constants, and computes the constants of one update.
///
/// No torch: updates of raw memory need only this header and update_kernels.h.
#pragma once

#include <string>
#include <vector>

#include "strata/base/options.h"
#include "strata/optim/update_kernels.h"

namespace strata {

enum class OptimizerKind : std::uint8_t { kAdamW, kSgd, kAdagrad, kMuon, kOneBitAdam };
/// "adamw", "sgd", "adagrad", "muon", "onebit-adam"
const char* name_of(OptimizerKind kind);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
  std::int64_t freeze_step = 100;  ///< updates of kOneBitAdam as AdamW
};

void describe(OptionSet& set, const std::string& prefix, OptimizerOptions& options);

/// Of weights other than the hidden matrices of Muon, and of kOneBitAdam before its freeze step.
kernels::UpdateRule rule_of(const OptimizerOptions& options);

kernels::UpdateConstants constants_of(const OptimizerOptions& options);

/// Names of the slots in checkpoints, e.g. {"exp_avg", "exp_avg_sq"}.
std::vector<std::string> slot_names(kernels::UpdateRule rule);

/// `step` counts from 1; `learning_rate` is that of this step.
kernels::UpdateStep update_step(const kernels::UpdateConstants& constants, std::int64_t step,
                                double learning_rate, double gradient_factor = 1);
kernels::UpdateStep update_step(const OptimizerOptions& options, std::int64_t step,
                                double learning_rate, double gradient_factor = 1);

}  // namespace strata
