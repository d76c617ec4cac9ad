/// Updates weights by LAMB: each weight with decay moves by a share of its own norm.
///
/// Adam's direction with decay,
///
///     u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay w,
///
/// moves a weight by learning_rate · ratio · u. The trust ratio ‖w‖ / ‖u‖ is that of the whole
/// weight, at least min_coeff and at most max_coeff; it is 1 if either norm is 0. Weights without
/// decay, biases and norms, have the ratio 1, which is AdamW's update.
///
/// Ranks may hold parts of a weight: each sums the squares of its own blocks, and all blocks'
/// squares, added in order, are the squared norm.
///
/// Source   You et al. 2020, "Large batch optimization for deep learning" (arXiv 1904.00962). Their
///          code and NVIDIA's FusedLAMB exclude weights without decay from the ratio; the limits
///          are DeepSpeed's.
/// Shapes   flat tensors in host memory, the elements of a layer from `begin` on; of sums of
///          squares fp64, two for each block: the weight's, the direction's.
/// Threads  the calling thread's pool; cuts at multiples of kFlatBlock and threads change no bit.
/// Cost     two passes over memory (lamb_kernels.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "strata/optim/optimizer.h"
#include "strata/optim/weight_blocks.h"

namespace strata {

/// The constants of one update.
struct LambStep {
  kernels::UpdateStep direction;  ///< AdamW's with a learning rate of 1
  double learning_rate = 0;
  double min_coeff = 0, max_coeff = 0;
};

/// `update` counts from 1; gradients are multiplied by `gradient_factor`.
LambStep lamb_step(const OptimizerOptions& options, std::int64_t update, double learning_rate,
                   double gradient_factor);

/// Moves m and v of the weights with decay, replaces their gradients by u, and returns the sums of
/// squares of the range's blocks.
at::Tensor find_directions(const LambStep& step, const WeightBlocks& blocks,
                           const UpdateRange& range, std::int64_t begin);

/// The sums of a layer's weights, two for each, from those of all its blocks. `slice`: this rank's
/// number among those that divide weights; an undivided weight counts for the first one only.
std::vector<double> add_blocks(const WeightBlocks& blocks, const at::Tensor& squares,
                               int slice = 0);

double trust_ratio(const LambStep& step, double weight_squares, double direction_squares);

/// One for each weight, of which `sums` has two.
std::vector<double> trust_ratios(const LambStep& step, std::span<const double> sums);

/// Moves the weights with decay by u. `ratios`: one for each.
void move_by_directions(const LambStep& step, const WeightBlocks& blocks, const UpdateRange& range,
                        std::int64_t begin, std::span<const double> ratios);

}  // namespace strata
