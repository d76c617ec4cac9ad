/// Updates by stochastic gradient descent with momentum (none: no slot) and an L2 penalty.
#pragma once

#include <utility>

#include "strata/optim/optimizer.h"

namespace strata {

class Sgd final : public Optimizer {
 public:
  explicit Sgd(OptimizerOptions options) : options_(std::move(options)) {}
  std::vector<std::string> slot_names() const override;
  void update(const UpdateRange& range, std::int64_t step, double learning_rate) const override;

 private:
  OptimizerOptions options_;
};

}  // namespace strata
