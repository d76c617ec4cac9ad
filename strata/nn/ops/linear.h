/// Multiplies by a weight, alone or after a cheap operator whose output would otherwise be saved,
/// and normalises rows.
///
/// `normalise` saves its input and one or two numbers per row.
///
/// `norm_linear` and `activation_linear` save only the input of the norm or activation and compute
/// its output again in backward, unless `keep` requests that the output is saved too (recompute:
/// none). `feed_forward` may also compute again what lies between its products. The bits are the
/// same. Weight gradients are added to the preset gradients of the leaves
/// by accumulate_weight_gradient.
///
/// A tensor-parallel rank has a slice of the weight: rows of it at the beginning of a split region
/// (norm_linear), columns at its end (linear, activation_linear).
///
/// Source  Shoeybi et al. 2019 (Megatron-LM). Weight gradients of norms use Strata's column sums,
///         in row order: ATen's depend on the threads.
/// Shapes  x [..., in], weight [out, in], bias [out] or undefined -> [..., out]; contiguous, all
///         fp32, bf16 or fp16, the leaves' gradients fp32. For a SwiGLU x is [..., 2 in]. Split
///         among n ranks: ColumnParallel has weight [out/n, in] and bias [out/n], RowParallel x
///         [..., in/n] and weight [out, in/n].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/layout/recompute.h"
#include "strata/nn/ops/remade.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {

/// Each rank computes some of the output's columns from the whole input. A null group: all columns.
struct ColumnParallel {
  const TensorParallel* group = nullptr;
};

/// Each rank has some of the input's columns; the products are summed, then the bias is added.
struct RowParallel {
  const TensorParallel* group = nullptr;
};

/// LayerNorm, or RMSNorm if there is no bias.
/// Shapes  x [..., C], gain and bias [C], statistics fp32.
at::Tensor normalise(const at::Tensor& x, const Norm& norm);

/// Saves its input.
at::Tensor activate(Activation activation, const at::Tensor& x);

/// Computes no gradient at x if autograd does not need it. Saves x unless `again` makes it
/// as its last tensor.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  RowParallel split = {}, const RemadePtr& again = {});

/// linear(normalise(x)); the norm works on the rank's part of x.
at::Tensor norm_linear(const at::Tensor& x, const Norm& norm, const at::Tensor& weight,
                       const at::Tensor& bias, bool keep, ColumnParallel split = {});

/// linear(activation(x))
at::Tensor activation_linear(Activation activation, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, bool keep, RowParallel split = {});

struct Affine {
  at::Tensor weight;
  at::Tensor bias = {};
};

/// norm_linear(x) for a backward: without a graph.
at::Tensor norm_linear_again(const at::Tensor& x, const Norm& norm, const Affine& affine,
                             ColumnParallel split = {});

/// activation_linear(norm_linear(x)), whose first product may also compute the activation.
at::Tensor feed_forward(const at::Tensor& x, const Norm& norm, const Affine& in,
                        Activation activation, const Affine& out, Recompute recompute,
                        const TensorParallel* group = nullptr);

/// The only function that computes a linear weight's gradient: gradient(weight) += dyᵀ x and
/// gradient(bias) += column sums of dy, in fp32 for any type of dy and x.
///
/// Shapes  dy [rows, out], x [rows, in].
void accumulate_weight_gradient(const at::Tensor& weight, const at::Tensor& dy,
                                const at::Tensor& x);
void accumulate_bias_gradient(const at::Tensor& bias, const at::Tensor& dy);

/// The gradient at x of activate(kind, x) weightᵀ, for its gradient dy; `again`, unless it is null,
/// becomes activate(kind, x). Fused if the device's products are.
///
/// Shapes  dy [rows, out], weight [out, in]; x and the result as the activation's input.
at::Tensor input_gradient_through(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                  const at::Tensor& weight, at::Tensor* again);

/// x as [rows, last dimension].
at::Tensor as_rows(const at::Tensor& x);

}  // namespace strata
