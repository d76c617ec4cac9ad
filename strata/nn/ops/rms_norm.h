/// Normalises rows by their root mean square, alone or fused with the product behind it.
///
/// `rms_norm_linear` is column-parallel: norm, entry to the split region, product. It saves its
/// input and one number a row and makes the norm's output again in backward, unless `keep` asks for
/// it to be saved too. The bits are the same.
///
/// Source  Zhang & Sennrich 2019. Weight gradients by our own column sums, in row order.
/// Shapes  x [..., C] contiguous, gain [C], weight [out, C], bias [out] or none; all fp32, bf16 or
///         fp16, gradients of leaves and statistics fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata {

class TensorParallel;

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double epsilon);

/// linear(rms_norm(x))
at::Tensor rms_norm_linear(const at::Tensor& x, const at::Tensor& gain, double epsilon,
                           const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                           bool keep, const TensorParallel* group = nullptr);

/// The pieces that a fused operator calls. `rstd` [rows] is written by the first and read after.
at::Tensor rms_norm_forward(const at::Tensor& x, const at::Tensor& gain, double epsilon,
                            at::Tensor& rstd);
at::Tensor rms_norm_again(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& rstd);
/// Gradient at x; adds the gradient of gain to `dgain` (fp32). Overwrites dy.
at::Tensor rms_norm_backward(const at::Tensor& x, at::Tensor dy, const at::Tensor& gain,
                             const at::Tensor& rstd, const at::Tensor& dgain);

}  // namespace strata
