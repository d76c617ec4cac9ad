/// Lists the update rules that make_optimizer chooses from.
#pragma once

#include "strata/optim/optimizer.h"

namespace strata {

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options);

}  // namespace strata
