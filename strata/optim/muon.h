/// Orthogonalises the updates of hidden matrices.
///
/// A velocity v = momentum v + g of each matrix gives the direction g + momentum v, whose singular
/// values five Newton-Schulz steps bring close to 1. The matrix moves by 0.2 sqrt(max(rows,
/// columns)) of that, the root mean square of an AdamW update, so one learning rate serves both.
///
/// Source   Jordan et al. 2024, "Muon"; the scale: Liu et al. 2025, "Muon is scalable for LLM
///          training" (arXiv 2502.16982).
/// Shapes   a weight [n, ...] is a matrix of n rows; parts of matrices are flat.
/// Cost     per matrix of r rows and c >= r columns: 20 r r c + 10 r r r operations in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/optim/optimizer.h"

namespace strata {

/// The numbers of one step.
struct MuonStep {
  double learning_rate = 0;
  double gradient_factor = 1;  ///< 1 / loss scale, clipping
  double momentum = 0;
  double weight_decay = 0;
};

/// A matrix with nearly the singular vectors of `matrix` and singular values from 0.7 to 1.3;
/// zeros remain zeros.
at::Tensor orthogonalised(const at::Tensor& matrix);

/// Moves the velocities of a part of a matrix, and writes the direction that is to be
/// orthogonalised.
void move_velocity(const at::Tensor& velocity, const at::Tensor& gradients, const MuonStep& step,
                   const at::Tensor& direction);

/// Moves a part of a matrix of that shape. `orthogonal`: the same part of the orthogonalised
/// direction.
void move_matrix(const UpdateRange& part, const at::Tensor& orthogonal,
                 const std::vector<std::int64_t>& shape, const MuonStep& step);

/// Bytes that orthogonalised() allocates for a matrix of that shape, with the direction itself.
std::int64_t orthogonalisation_bytes(const std::vector<std::int64_t>& shape);
/// Its operations.
double orthogonalisation_flops(const std::vector<std::int64_t>& shape);

}  // namespace strata
