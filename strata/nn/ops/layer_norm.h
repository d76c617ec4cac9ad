/// Normalises rows. Saves its input and two numbers a row.
///
/// Source  Ba et al. 2016. Weight gradients by our own column sums: ATen's depend on the threads.
/// Shapes  x [..., C] contiguous, gain and bias [C]; all fp32, bf16 or fp16, gradients of leaves
///         and statistics fp32.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

inline constexpr float kNormEpsilon = 1e-5f;

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias);

/// The pieces that a fused operator calls.
struct NormStatistics {
  at::Tensor mean;  // [rows]
  at::Tensor rstd;  // [rows]
};
at::Tensor layer_norm_forward(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                              NormStatistics& statistics);
at::Tensor layer_norm_again(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                            const NormStatistics& statistics);
/// Gradient at x; adds the gradients of gain and bias to their leaves. May overwrite dy.
at::Tensor layer_norm_backward(const at::Tensor& x, at::Tensor dy, const at::Tensor& gain,
                               const at::Tensor& bias, const NormStatistics& statistics);

}  // namespace strata
