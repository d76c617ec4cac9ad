/// Multiplies by a row-parallel weight without bias, alone or behind the SwiGLU: product, then the
/// sum over the ranks of the split region's end.
///
/// `swiglu_linear` saves the gate and the other half only and computes their product again in
/// backward, unless `keep` asks for it to be saved too. The bits are the same.
///
/// Source  Shazeer 2020 (SwiGLU).
/// Shapes  x [..., in], weight [out, in] -> [..., out]; gate_up [..., 2 in]: the gate, then what it
///         lets through. Contiguous, all fp32, bf16 or fp16; `in` is this rank's part.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

class TensorParallel;

at::Tensor row_linear(const at::Tensor& x, const at::Tensor& weight,
                      const TensorParallel* group = nullptr);

/// row_linear(silu(gate) * up)
at::Tensor swiglu_linear(const at::Tensor& gate_up, const at::Tensor& weight, bool keep,
                         const TensorParallel* group = nullptr);

}  // namespace strata
