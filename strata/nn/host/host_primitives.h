/// Implements the primitives on a host: MKL's and oneDNN's products, ATen's attention, Highway
/// kernels for the rest, cut into pieces for the rank's thread pool where cuts don't change bits.
///
/// 16-bit products are made of operands widened to fp32 unless the processor is faster in 16 bit
/// (device/fast_products.h).
#pragma once

#include "strata/nn/primitives.h"

namespace strata {

class HostPrimitives final : public Primitives {
 public:
  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override;
  at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const override;
  at::Tensor as_operand(const at::Tensor& gradient, at::ScalarType dtype) const override;
  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override;
  void add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override;
  void add_column_sums(const at::Tensor& sum, const at::Tensor& x) const override;

  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                        float epsilon, at::Tensor& mean, at::Tensor& rstd) const override;
  at::Tensor layer_norm_again(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                              const at::Tensor& mean, const at::Tensor& rstd) const override;
  void layer_norm_gradient(const at::Tensor& x, at::Tensor& dy, const at::Tensor& gain,
                           const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& dgain,
                           const at::Tensor& dbias) const override;
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, float epsilon,
                      at::Tensor& rstd) const override;
  at::Tensor rms_norm_again(const at::Tensor& x, const at::Tensor& gain,
                            const at::Tensor& rstd) const override;
  void rms_norm_gradient(const at::Tensor& x, at::Tensor& dy, const at::Tensor& gain,
                         const at::Tensor& rstd, const at::Tensor& dgain) const override;

  at::Tensor add(const at::Tensor& a, const at::Tensor& b) const override;
  at::Tensor gelu(const at::Tensor& x) const override;
  void gelu_gradient(const at::Tensor& x, const at::Tensor& dy) const override;
  at::Tensor gelu_gradient_again(const at::Tensor& x, const at::Tensor& dy) const override;
  at::Tensor swiglu(const at::Tensor& gate_up) const override;
  at::Tensor swiglu_gradient(const at::Tensor& gate_up, const at::Tensor& dy) const override;
  at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x,
                         const MaskOfSamples& mask) const override;

  void rotate(const at::Tensor& x, const at::Tensor& table, RopeTurn turn) const override;
  Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;
  void attend_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const Attended& attended, const at::Tensor& dy, const at::Tensor& dq,
                       const at::Tensor& dk, const at::Tensor& dv) const override;

  at::Tensor rows(const at::Tensor& tokens, const at::Tensor& weight,
                  std::int64_t first) const override;
  void add_rows(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& sum,
                std::int64_t first) const override;
  void add_positions(const at::Tensor& x, const at::Tensor& positions) const override;
  void add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const override;

  void add_loss(double& loss, at::Tensor& logits, const std::int64_t* targets,
                const kernels::CrossEntropy& what, const TensorParallel* group,
                bool gradient) const override;
};

}  // namespace strata
