/// Updates by AdamW: decoupled weight decay, bias-corrected moments.
#pragma once

#include <utility>

#include "strata/optim/optimizer.h"

namespace strata {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(OptimizerOptions options) : options_(std::move(options)) {}
  std::vector<std::string> slot_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(const UpdateRange& range, std::int64_t step, double learning_rate) const override;

 private:
  OptimizerOptions options_;
};

}  // namespace strata
