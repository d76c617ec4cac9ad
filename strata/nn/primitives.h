/// Computes what operators are made of on one kind of device: tensors in, tensors out.
///
/// The autograd Functions of ops/ hold the policy (what is saved, what runs again, borders of split
/// regions, where gradients accumulate) and call these; a new kind of device is another
/// implementation beside host/.
///
/// Shapes   contiguous unless said otherwise; x [rows, in], weight [out, in], dy [rows, out]; fp32,
///          bf16 or fp16 alike, statistics and sums fp32. What is computed is fp32, each result is
///          rounded once.
/// Threads  const, callable from any thread; a host's work is shared among the caller's pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/nn/kernels/kernels.h"

namespace strata {

class TensorParallel;

enum class RopeTurn { kForward, kBack };

/// Attention's output [B, T, heads * width] and one number a row and head, [B, heads, T].
struct Attended {
  at::Tensor y, log_sum;
};

/// Which elements dropout keeps: a rank has part `part` of each sample.
struct MaskOfSamples {
  kernels::DropoutMask mask;
  std::int64_t first_sample;
  std::int64_t part;
};

class Primitives {
 public:
  virtual ~Primitives() = default;

  // ---- Products
  /// x weightᵀ, plus the bias if it is defined.
  virtual at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) const = 0;
  /// The same in fp32, unrounded where that costs nothing.
  virtual at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const = 0;
  /// A gradient in fp32 as the next two take it beside operands of `dtype`: itself, or rounded.
  virtual at::Tensor as_operand(const at::Tensor& gradient, at::ScalarType dtype) const = 0;
  /// dx = dy weight
  virtual void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                              const at::Tensor& weight) const = 0;
  /// sum += dyᵀ x, sum fp32.
  virtual void add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                                   const at::Tensor& x) const = 0;
  /// sum += column sums of x, rows in ascending order.
  virtual void add_column_sums(const at::Tensor& sum, const at::Tensor& x) const = 0;

  // ---- Norms; statistics are made by the first and read by the others, dy becomes dx
  virtual at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                                float epsilon, at::Tensor& mean, at::Tensor& rstd) const = 0;
  virtual at::Tensor layer_norm_again(const at::Tensor& x, const at::Tensor& gain,
                                      const at::Tensor& bias, const at::Tensor& mean,
                                      const at::Tensor& rstd) const = 0;
  virtual void layer_norm_gradient(const at::Tensor& x, at::Tensor& dy, const at::Tensor& gain,
                                   const at::Tensor& mean, const at::Tensor& rstd,
                                   const at::Tensor& dgain, const at::Tensor& dbias) const = 0;
  virtual at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, float epsilon,
                              at::Tensor& rstd) const = 0;
  virtual at::Tensor rms_norm_again(const at::Tensor& x, const at::Tensor& gain,
                                    const at::Tensor& rstd) const = 0;
  virtual void rms_norm_gradient(const at::Tensor& x, at::Tensor& dy, const at::Tensor& gain,
                                 const at::Tensor& rstd, const at::Tensor& dgain) const = 0;

  // ---- Activations
  virtual at::Tensor add(const at::Tensor& a, const at::Tensor& b) const = 0;
  virtual at::Tensor gelu(const at::Tensor& x) const = 0;
  /// dy becomes dx.
  virtual void gelu_gradient(const at::Tensor& x, const at::Tensor& dy) const = 0;
  /// The same; gives gelu(x) again.
  virtual at::Tensor gelu_gradient_again(const at::Tensor& x, const at::Tensor& dy) const = 0;
  virtual at::Tensor swiglu(const at::Tensor& gate_up) const = 0;
  /// The gradient at gate_up; dy becomes swiglu(gate_up).
  virtual at::Tensor swiglu_gradient(const at::Tensor& gate_up, const at::Tensor& dy) const = 0;
  /// residual + mask * x; without a residual mask * x.
  virtual at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x,
                                 const MaskOfSamples& mask) const = 0;

  // ---- Attention, causal; q, k, v [B, T, heads, width], heads of a token side by side
  /// Turns in place; table [T, width] fp32.
  virtual void rotate(const at::Tensor& x, const at::Tensor& table, RopeTurn turn) const = 0;
  virtual Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const = 0;
  /// Writes dq, dk, dv, shaped as q, k, v.
  virtual void attend_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const Attended& attended, const at::Tensor& dy, const at::Tensor& dq,
                               const at::Tensor& dk, const at::Tensor& dv) const = 0;

  // ---- Embeddings; tokens [B, T], the rank has the rows from `first` on, others count as zero
  virtual at::Tensor rows(const at::Tensor& tokens, const at::Tensor& weight,
                          std::int64_t first) const = 0;
  /// sum of each token's row += dy, positions in ascending order.
  virtual void add_rows(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& sum,
                        std::int64_t first) const = 0;
  /// x [B, T, C] += positions [T, C]
  virtual void add_positions(const at::Tensor& x, const at::Tensor& positions) const = 0;
  /// sum [T, C] += dy [B, T, C], samples in ascending order.
  virtual void add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const = 0;

  // ---- Loss
  /// The sum of the rows' losses in row order, added to `loss`; fp32 logits become their gradient
  /// if it is wanted. The group's ranks add up their rows' maxima and sums.
  virtual void add_loss(double& loss, at::Tensor& logits, const std::int64_t* targets,
                        const kernels::CrossEntropy& what, const TensorParallel* group,
                        bool gradient) const = 0;
};

/// Those of the tensor's kind of device.
const Primitives& primitives(const at::Tensor& x);

}  // namespace strata
