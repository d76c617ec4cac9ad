#include "strata/optim/optimizer.h"

#include "strata/base/errors.h"
#include "strata/optim/adamw.h"
#include "strata/optim/sgd.h"

namespace strata {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  if (options.kind == "adamw") return std::make_unique<AdamW>(options);
  if (options.kind == "sgd") return std::make_unique<Sgd>(options);
  throw UserError({.operation = "optim.make_optimizer",
                   .where = "optimizer.kind",
                   .what = "there is no such optimizer",
                   .expected = "adamw or sgd",
                   .got = options.kind,
                   .fix = "set train.optimizer.kind=adamw"});
}

}  // namespace strata
