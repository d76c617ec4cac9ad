#include "strata/base/errors.h"
#include "strata/optim/kinds.h"

namespace strata {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  if (options.kind == "adamw") return make_adamw(options);
  if (options.kind == "sgd") return make_sgd(options);
  throw UserError({.operation = "optim.make_optimizer",
                   .what = "unknown optimizer",
                   .expected = "adamw or sgd",
                   .got = options.kind,
                   .fix = "set train.optimizer.kind to adamw"});
}

}  // namespace strata
