#include "strata/optim/options.h"

namespace strata {

void describe(OptionSet& set, const std::string& prefix, OptimizerOptions& options) {
  // A decay rate of 1 would never forget, and divides by zero in AdamW's bias correction.
  constexpr double kBelowOne = 0.999999;
  set.add(prefix + ".kind", &options.kind,
          {.help = "How gradients change the weights.", .choices = {"adamw", "sgd"}});
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

}  // namespace strata
