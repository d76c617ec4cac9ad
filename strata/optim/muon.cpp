#include "strata/optim/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>

#include "strata/base/errors.h"
#include "strata/optim/master_weights.h"

namespace strata {
namespace {

constexpr int kNewtonSchulzSteps = 5;
// Of the odd polynomial a x + b x^3 + c x^5, whose slope at 0 is large: small singular values grow
// fast.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kLeastNorm = 1e-7;
constexpr double kAdamRootMeanSquare = 0.2;

struct Sides {
  double shorter = 0, longer = 0;
};

Sides sides_of(const std::vector<std::int64_t>& shape) {
  const auto rows = static_cast<double>(shape[0]);
  double columns = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) columns *= static_cast<double>(shape[i]);
  return {std::min(rows, columns), std::max(rows, columns)};
}

}  // namespace

at::Tensor orthogonalised(const at::Tensor& matrix) {
  STRATA_CHECK_EQ(matrix.dim(), 2, "optim.muon");
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  // The norm is a number of the host, so that a scale changes no bit of the rest.
  const double norm = at::linalg_vector_norm(x, 2, {}, false, at::kDouble).item<double>();
  x = x * (1 / (norm + kLeastNorm));
  for (int step = 0; step < kNewtonSchulzSteps; ++step) {
    const at::Tensor square = at::mm(x, x.t());
    at::Tensor polynomial = at::mm(square, square).mul_(kC);
    polynomial.add_(square, kB);
    x = at::mm(polynomial, x).add_(x, kA);
  }
  return tall ? x.t().contiguous() : x;
}

void move_velocity(const at::Tensor& velocity, const at::Tensor& gradients, const MuonStep& step,
                   const at::Tensor& direction) {
  direction.copy_(gradients);
  if (step.gradient_factor != 1) direction.mul_(step.gradient_factor);
  velocity.mul_(step.momentum).add_(direction);
  direction.add_(velocity, step.momentum);
}

void move_matrix(const UpdateRange& part, const at::Tensor& orthogonal,
                 const std::vector<std::int64_t>& shape, const MuonStep& step) {
  const double scale = kAdamRootMeanSquare * std::sqrt(sides_of(shape).longer);
  const MasterWeights master{part.weights, part.remainder};
  const at::Tensor values = master.whole();
  values.mul_(1 - step.learning_rate * step.weight_decay);
  values.add_(orthogonal, -step.learning_rate * scale);
  if (master.split()) master.assign(values);
  if (part.rounded.defined()) part.rounded.copy_(values);
}

std::int64_t orthogonalisation_bytes(const std::vector<std::int64_t>& shape) {
  const auto [shorter, longer] = sides_of(shape);
  // The direction, x before and after a step, and the two squares.
  return static_cast<std::int64_t>(sizeof(float) * (3 * shorter * longer + 2 * shorter * shorter));
}

double orthogonalisation_flops(const std::vector<std::int64_t>& shape) {
  const auto [shorter, longer] = sides_of(shape);
  return kNewtonSchulzSteps * (4 * shorter * shorter * longer + 2 * shorter * shorter * shorter);
}

}  // namespace strata
