#include "strata/task/recommender/delayed_gradients.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "strata/device/device.h"

namespace strata {
namespace {

std::vector<at::Tensor> gradients_of(double step) {
  return {at::full({3}, step, host_options(at::kFloat)),
          at::full({2}, 100 + step, host_options(at::kFloat))};
}

TEST(DelayedGradients, AppliesEachGradientAsManyStepsLateAsRequested) {
  constexpr int kDelay = 2;
  DelayedGradients delayed(kDelay);
  for (int step = 0; step < 6; ++step) {
    const std::vector<at::Tensor> gradients = gradients_of(step);
    EXPECT_EQ(delayed.has_gradients(), step >= kDelay) << step;
    delayed.filter(gradients);
    if (step < kDelay) continue;
    const std::vector<at::Tensor> expected = gradients_of(step - kDelay);
    EXPECT_TRUE(gradients[0].equal(expected[0])) << step;
    EXPECT_TRUE(gradients[1].equal(expected[1])) << step;
  }
}

}  // namespace
}  // namespace strata
