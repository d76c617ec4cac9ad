#include "strata/nn/graph/moments.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

at::Tensor moments_of_rows(const at::Tensor& x) {
  return moments_of(x.size(0), x.mean(0), x.var(0, /*unbiased=*/false));
}

TEST(Moments, AddUnequalPartsToWhole) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({50, 7}, at::kDouble) * 3 + 2;
  at::Tensor sum = no_moments(7, at::TensorOptions());
  std::int64_t begin = 0;
  for (const std::int64_t size : {1, 20, 2, 27}) {
    add_moments(sum, moments_of_rows(x.narrow(0, begin, size)));
    begin += size;
  }
  EXPECT_TRUE(at::allclose(mean_of(sum), x.mean(0), 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(unbiased_variance_of(sum), x.var(0), 1e-12, 1e-13));
  add_moments(sum, no_moments(7, at::TensorOptions()));  // changes nothing
  EXPECT_TRUE(at::allclose(unbiased_variance_of(sum), x.var(0), 1e-12, 1e-13));
}

// Sums of squares would have lost the variance: 1e16 has no room for it.
TEST(Moments, KeepASmallVarianceOfALargeMean) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({64, 3}, at::kDouble) + 1e8;
  at::Tensor sum = no_moments(3, at::TensorOptions());
  for (const at::Tensor& part : x.split(8)) add_moments(sum, moments_of_rows(part));
  EXPECT_TRUE(at::allclose(unbiased_variance_of(sum), x.var(0), 1e-6, 0));
}

}  // namespace
}  // namespace strata
