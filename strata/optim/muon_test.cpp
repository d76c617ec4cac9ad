// Compares with singular values by LAPACK, and with the formulas in fp64.
#include "strata/optim/muon.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>

#include "strata/device/device.h"
#include "strata/optim/master_weights.h"

namespace strata {
namespace {

at::Tensor random_matrix(std::int64_t rows, std::int64_t columns) {
  at::manual_seed(rows * 1000 + columns);
  return at::randn({rows, columns}, host_options(at::kFloat));
}

TEST(Muon, SingularValuesOfOrthogonalisedMatrixAreNearOneAndVectorsStay) {
  for (const auto& [rows, columns] : {std::pair(16, 16), std::pair(8, 40), std::pair(40, 8)}) {
    const at::Tensor matrix = random_matrix(rows, columns);
    const auto [u, s, v] = at::linalg_svd(matrix.to(at::kDouble), /*full_matrices=*/false);
    const at::Tensor found = orthogonalised(matrix).to(at::kDouble);
    ASSERT_EQ(found.sizes(), matrix.sizes());
    const at::Tensor values = u.t().mm(found).mm(v.t());  // diagonal, if the vectors are the same
    const at::Tensor diagonal = values.diagonal();
    // A square matrix has singular values near 0, which five steps do not bring to 1.
    if (rows != columns) EXPECT_GT(diagonal.min().item<double>(), 0.65);
    EXPECT_LT(diagonal.max().item<double>(), 1.35);
    EXPECT_LT((values - diagonal.diag()).abs().max().item<double>(), 1e-4);
  }
}

TEST(Muon, ScaleOfMatrixChangesNothing) {
  const at::Tensor matrix = random_matrix(8, 24);
  EXPECT_TRUE(at::allclose(orthogonalised(matrix * 1024), orthogonalised(matrix), 0, 1e-6));
}

TEST(Muon, ZerosRemainZeros) {
  const at::Tensor found = orthogonalised(at::zeros({4, 6}, host_options(at::kFloat)));
  EXPECT_EQ(found.abs().max().item<float>(), 0);
}

TEST(Muon, VelocityAndDirectionFollowFormulas) {
  const at::Tensor gradients = random_matrix(1, 100).view(-1);
  const at::Tensor velocity = random_matrix(1, 101).view(-1).narrow(0, 0, 100).clone();
  const at::Tensor before = velocity.to(at::kDouble);
  const at::Tensor direction = at::empty_like(gradients);
  move_velocity(velocity, gradients, {.gradient_factor = 0.5, .momentum = 0.9}, direction);
  const at::Tensor moved = 0.9 * before + 0.5 * gradients.to(at::kDouble);
  EXPECT_TRUE(at::allclose(velocity.to(at::kDouble), moved, 0, 1e-6));
  EXPECT_TRUE(at::allclose(direction.to(at::kDouble), 0.5 * gradients + 0.9 * moved, 0, 1e-6));
}

TEST(Muon, MatrixMovesByScaledDirectionAndDecays) {
  const at::Tensor weights = random_matrix(4, 9).view(-1).clone();
  const at::Tensor before = weights.clone();
  const at::Tensor orthogonal = random_matrix(4, 9).view(-1);
  const MuonStep step{.learning_rate = 0.1, .weight_decay = 0.2};
  const at::Tensor rounded = at::zeros({36}, host_options(at::kHalf));
  move_matrix({.weights = weights, .rounded = rounded}, orthogonal, {4, 3, 3}, step);
  const at::Tensor expected = before * (1 - 0.1 * 0.2) - 0.1 * 0.2 * 3 * orthogonal;
  EXPECT_TRUE(at::allclose(weights, expected, 0, 1e-6));
  EXPECT_TRUE(at::equal(rounded, weights.to(at::kHalf)));
}

TEST(Muon, SplitWeightsMoveAsWholeOnes) {
  const at::Tensor whole = random_matrix(4, 16).view(-1).clone();
  const at::Tensor high = at::empty({64}, host_options(at::kBFloat16));
  const at::Tensor low = at::empty({64}, host_options(at::kShort));
  const MasterWeights split{high, low};
  split.assign(whole);
  const at::Tensor orthogonal = random_matrix(16, 4).view(-1);
  const MuonStep step{.learning_rate = 0.1, .weight_decay = 0.2};
  move_matrix({.weights = whole}, orthogonal, {4, 16}, step);
  move_matrix({.weights = high, .remainder = low}, orthogonal, {4, 16}, step);
  EXPECT_TRUE(at::equal(split.whole(), whole));
}

}  // namespace
}  // namespace strata
