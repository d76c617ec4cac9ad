#include "strata/optim/loss_scale.h"

#include <algorithm>

namespace strata {

void LossScale::good() {
  if (!dynamic || ++good_steps < kGrowthSteps) return;
  scale *= 2;
  good_steps = 0;
}

void LossScale::skip() {
  scale = std::max(kSmallest, scale / 2);
  good_steps = 0;
  ++skipped;
}

}  // namespace strata
