/// Multiplies by a weight, alone or behind the cheap operator whose output it would have to keep, and
/// normalises rows.
///
/// `normalise` saves its input and one or two numbers a row.
///
/// `norm_linear` and `activation_linear` save the input of the norm or activation only and compute
/// its output again in backward, unless `keep` asks for the output to be saved too (recompute: none).
/// The bits are the same. Weight gradients are added to the preset gradients of the leaves by
/// accumulate_weight_gradient.
///
/// A tensor-parallel rank has a slice of the weight: rows of it where a split region is entered
/// (norm_linear), columns where it is left (linear, activation_linear). The call says which.
///
/// Source  Shoeybi et al. 2019 (Megatron-LM). Weight gradients of norms by our own column sums, in row
///         order: ATen's depend on the threads.
/// Shapes  x [..., in], weight [out, in], bias [out] or undefined -> [..., out]; contiguous, all
///         fp32, bf16 or fp16, the leaves' gradients fp32. Behind a SwiGLU x is [..., 2 in]. Split
///         among n ranks: ColumnParallel has weight [out/n, in] and bias [out/n], RowParallel
///         x [..., in/n] and weight [out, in/n].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/nn/primitives/primitives.h"

namespace strata {

/// Each rank makes some of the output's columns of the whole input. A null group: all of them.
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

/// Without a gradient at x where nobody asks for it.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  RowParallel split = {});

/// linear(normalise(x)); the norm works on what the rank has.
at::Tensor norm_linear(const at::Tensor& x, const Norm& norm, const at::Tensor& weight,
                       const at::Tensor& bias, bool keep, ColumnParallel split = {});

/// linear(activation(x))
at::Tensor activation_linear(Activation activation, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, bool keep, RowParallel split = {});

struct Affine {
  at::Tensor weight;
  at::Tensor bias = {};
};

/// activation_linear(norm_linear(x)), whose first product may make the activation's output in passing.
at::Tensor feed_forward(const at::Tensor& x, const Norm& norm, const Affine& in,
                        Activation activation, const Affine& out, bool keep,
                        const TensorParallel* group = nullptr);

/// The one place where a linear weight's gradient is made, now or later: gradient(weight) += dyᵀ x
/// and gradient(bias) += column sums of dy, in fp32 whatever dy and x are.
///
/// Shapes  dy [rows, out], x [rows, in].
void accumulate_weight_gradient(const at::Tensor& weight, const at::Tensor& dy,
                                const at::Tensor& x);
void accumulate_bias_gradient(const at::Tensor& bias, const at::Tensor& dy);

/// The gradient at x of activate(kind, x) weightᵀ, whose gradient is dy; `again`, unless it is null,
/// becomes activate(kind, x). Fused where the device's products are.
///
/// Shapes  dy [rows, out], weight [out, in]; x and the result as the activation's input.
at::Tensor input_gradient_through(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                  const at::Tensor& weight, at::Tensor* again);

/// x as [rows, last dimension].
at::Tensor as_rows(const at::Tensor& x);

}  // namespace strata
