/// Implements the primitives on a GPU: kernels of our own for what passes over memory (kernels/cuda_kernels.h),
/// libraries for products and attention. No call waits for the device.
///
/// A library's product of a row may differ with the other rows: other cuts than the host's, so bits are those
/// of a shape. Logits stay in the type of the operands.
///
/// Errors  InternalError: tensors that don't lie as the interface says.
#pragma once

#include "strata/nn/cuda/libraries.h"
#include "strata/nn/primitives.h"

namespace strata {

class CudaPrimitives final : public Primitives {
 public:
  /// `libraries` outlive it.
  explicit CudaPrimitives(const CudaLibraries& libraries) : libraries_(libraries) {}

  DeviceKind kind() const override { return DeviceKind::kCuda; }

  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override;
  at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const override;
  at::Tensor as_operand(const at::Tensor& gradient, at::ScalarType dtype) const override;
  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override;
  void add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override;
  void add_column_sums(const at::Tensor& sum, const at::Tensor& x) const override;
  at::Tensor product_ahead_of(Activation kind, const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias, at::Tensor& activated) const override;
  at::Tensor input_gradient_behind(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                   const at::Tensor& weight, at::Tensor* again) const override;
  void add_linear_gradients(const at::Tensor& sum, const at::Tensor& bias_sum, const at::Tensor& dy,
                            const at::Tensor& x) const override;

  at::Tensor norm(const at::Tensor& x, const Norm& norm, NormStatistics& statistics) const override;
  at::Tensor norm_again(const at::Tensor& x, const Norm& norm,
                        const NormStatistics& statistics) const override;
  void norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                     const NormStatistics& statistics, const NormSums& sums) const override;

  BatchStatistics batch_statistics(const at::Tensor& x) const override;
  at::Tensor batch_norm(const at::Tensor& x, const Norm& norm,
                        const BatchStatistics& statistics) const override;
  void batch_norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                           const BatchStatistics& statistics, const NormSums& sums) const override;

  at::Tensor activate(Activation kind, const at::Tensor& x) const override;
  at::Tensor activation_gradient(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                 at::Tensor* again) const override;
  at::Tensor add(const at::Tensor& a, const at::Tensor& b) const override;
  void add_bias(const at::Tensor& x, const at::Tensor& bias) const override;
  at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x,
                         const MaskOfSamples& mask) const override;
  at::Tensor multiply_add(const at::Tensor& a, const at::Tensor& b,
                          const at::Tensor& c) const override;

  at::Tensor pairwise_dots(const at::Tensor& first, const at::Tensor& rest,
                           std::int64_t width) const override;
  void pairwise_dots_gradient(const at::Tensor& first, const at::Tensor& rest, std::int64_t width,
                              const at::Tensor& dy, const at::Tensor& dfirst,
                              const at::Tensor& drest) const override;

  void rotate(const at::Tensor& x, const at::Tensor& table, RopeTurn turn) const override;
  Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;
  void attend_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const Attended& attended, const at::Tensor& dy, const at::Tensor& dq,
                       const at::Tensor& dk, const at::Tensor& dv) const override;
  at::Tensor attend_last(const at::Tensor& q, const at::Tensor& keys,
                         const at::Tensor& values) const override;

  at::Tensor rows(const at::Tensor& tokens, const at::Tensor& weight,
                  std::int64_t first) const override;
  void add_rows(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& sum,
                std::int64_t first) const override;
  void add_positions(const at::Tensor& x, const at::Tensor& positions) const override;
  void add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const override;

  void add_loss(const at::Tensor& loss, at::Tensor& logits, const at::Tensor& targets,
                const kernels::CrossEntropy& what, const TensorParallel* group, bool gradient,
                const StepScalars* scalars) const override;
  void add_logistic_loss(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& labels,
                         double scale, const at::Tensor& gradient,
                         const StepScalars* scalars) const override;

 private:
  void* stream(const at::Tensor& x) const { return libraries_.stream(x); }
  const CudaProducts& products() const { return libraries_.products(); }

  const CudaLibraries& libraries_;
};

}  // namespace strata
