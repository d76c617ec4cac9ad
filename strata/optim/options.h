/// Chooses the optimizer and its constants.
#pragma once

#include <string>

#include "strata/base/options.h"

namespace strata {

struct OptimizerOptions {
  std::string kind = "adamw";
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
};

void describe(OptionSet& set, const std::string& prefix, OptimizerOptions& options);

}  // namespace strata
