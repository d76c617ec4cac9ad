/// Runs the random operators of a graph: dropout of elements and of channels, alpha dropout, and
/// Bernoulli numbers, drawn by counter (nn/ops/residual.h). They are the same on every mesh,
/// because each sample has its own.
///
/// In an evaluation dropout does nothing, and a Bernoulli number is its probability: stochastic
/// depth, which divides by the probability, then does nothing either.
///
/// Source  dropout: Srivastava et al. 2014; channels: Tompson et al. 2015; alpha: Klambauer et al.
///         2017; stochastic depth: Huang et al. 2016.
/// Errors  UserError `[exported.read]`: a value whose first dimension does not count samples, or
///         whose type is not fp32, bf16 or fp16; too many uses of dropout in a layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "strata/exported/exported_program.h"
#include "strata/nn/graph/layer.h"
#include "strata/nn/ops/residual.h"

namespace strata {

struct RandomStep {
  enum class Kind : std::uint8_t { kDropout, kAlphaDropout, kBernoulli };
  Kind kind = Kind::kDropout;
  bool by_channel = false;  ///< a number for each [sample, channel], not for each element
  Dropout dropout = {};     ///< its probability: that an element becomes 0
  at::Tensor apply(const at::Tensor& x, std::int64_t samples, const ForwardContext& context) const;
};

/// Whether the node is one of these operators.
bool is_random_step(const GraphNode& node);

/// The name of its input.
std::string random_input(const GraphNode& node);

/// `dropouts`: how many uses of dropout the layer has so far.
RandomStep random_step(const ExportedProgram& program, const GraphNode& node, int& dropouts);

/// Refuses a value whose first dimension is not the samples or a multiple of them.
void require_samples(const ExportedProgram& program, const GraphNode& node,
                     const std::string& value);
Dropout next_dropout(const GraphNode& node, double probability, int& dropouts);

}  // namespace strata
