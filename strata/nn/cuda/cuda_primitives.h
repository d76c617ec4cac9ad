/// Implements the primitives on a GPU: Strata's kernels for memory-bound operations
/// (kernels/cuda_kernels.h), libraries for products and attention. No call waits for the device.
///
/// A library's product of a row may differ with the other rows, because it divides the work
/// differently: bits depend on the shape. Logits keep the type of the operands.
///
/// Errors  InternalError: tensors in another layout than the interface states.
#pragma once

#include "strata/nn/cuda/libraries.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {

/// Primitives of one interface that use the stream and the operations of `libraries`.
template <typename Interface>
class OnLibraries : public Interface {
 public:
  /// `libraries` must outlive the object.
  explicit OnLibraries(const CudaLibraries& libraries) : libraries_(libraries) {}

 protected:
  void* stream(const at::Tensor& x) const { return libraries_.stream(x); }
  const CudaLibraries& libraries() const { return libraries_; }

 private:
  const CudaLibraries& libraries_;
};

class CudaProductPrimitives final : public OnLibraries<ProductPrimitives> {
 public:
  using OnLibraries::OnLibraries;
  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override;
  at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const override;
  at::Tensor as_operand(const at::Tensor& gradient, at::ScalarType dtype) const override;
  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override;
  void add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override;
  void add_column_sums(const at::Tensor& sum, const at::Tensor& x) const override;
  at::Tensor product_and_activation(Activation kind, const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias, at::Tensor& activated) const override;
  at::Tensor fused_input_gradient(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                  const at::Tensor& weight) const override;
  void add_linear_gradients(const at::Tensor& sum, const at::Tensor& bias_sum, const at::Tensor& dy,
                            const at::Tensor& x) const override;
};

class CudaNormPrimitives final : public OnLibraries<NormPrimitives> {
 public:
  using OnLibraries::OnLibraries;
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
};

class CudaElementPrimitives final : public OnLibraries<ElementPrimitives> {
 public:
  using OnLibraries::OnLibraries;
  at::Tensor activate(Activation kind, const at::Tensor& x) const override;
  at::Tensor activation_gradient(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                 at::Tensor* again) const override;
  at::Tensor add(const at::Tensor& a, const at::Tensor& b) const override;
  void add_bias(const at::Tensor& x, const at::Tensor& bias) const override;
  at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x,
                         const MaskOfSamples& mask) const override;
  at::Tensor multiply_add(const at::Tensor& a, const at::Tensor& b,
                          const at::Tensor& c) const override;
};

class CudaInteractionPrimitives final : public OnLibraries<InteractionPrimitives> {
 public:
  using OnLibraries::OnLibraries;
  at::Tensor pairwise_dots(const at::Tensor& first, const at::Tensor& rest,
                           std::int64_t width) const override;
  void pairwise_dots_gradient(const at::Tensor& first, const at::Tensor& rest, std::int64_t width,
                              const at::Tensor& dy, const at::Tensor& dfirst,
                              const at::Tensor& drest) const override;
};

class CudaAttentionPrimitives final : public OnLibraries<AttentionPrimitives> {
 public:
  using OnLibraries::OnLibraries;
  void rotate(const at::Tensor& x, const at::Tensor& table, RopeTurn turn) const override;
  Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;
  void attend_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const Attended& attended, const at::Tensor& dy, const at::Tensor& dq,
                       const at::Tensor& dk, const at::Tensor& dv) const override;
  at::Tensor attend_pages(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                          const PagedText& text) const override;
};

class CudaRowPrimitives final : public OnLibraries<RowPrimitives> {
 public:
  using OnLibraries::OnLibraries;
  at::Tensor gather(const at::Tensor& tokens, const at::Tensor& weight,
                    std::int64_t first) const override;
  void add_rows(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& sum,
                std::int64_t first) const override;
  void add_positions(const at::Tensor& x, const at::Tensor& positions) const override;
  void add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const override;
};

class CudaLossPrimitives final : public OnLibraries<LossPrimitives> {
 public:
  using OnLibraries::OnLibraries;
  void add_loss(const at::Tensor& loss, at::Tensor& logits, const at::Tensor& targets,
                const kernels::CrossEntropy& what, const TensorParallel* group, bool gradient,
                const StepScalars* scalars) const override;
  void add_logistic_loss(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& labels,
                         double scale, const at::Tensor& gradient,
                         const StepScalars* scalars) const override;
};

/// All of them as one object.
class CudaPrimitives {
 public:
  /// `libraries` must outlive the object.
  explicit CudaPrimitives(const CudaLibraries& libraries)
      : products_(libraries),
        norms_(libraries),
        elements_(libraries),
        interactions_(libraries),
        attention_(libraries),
        rows_(libraries),
        losses_(libraries) {}
  CudaPrimitives(const CudaPrimitives&) = delete;
  CudaPrimitives& operator=(const CudaPrimitives&) = delete;

  const Primitives& all() const { return all_; }

 private:
  CudaProductPrimitives products_;
  CudaNormPrimitives norms_;
  CudaElementPrimitives elements_;
  CudaInteractionPrimitives interactions_;
  CudaAttentionPrimitives attention_;
  CudaRowPrimitives rows_;
  CudaLossPrimitives losses_;
  Primitives all_{products_, norms_, elements_, interactions_, attention_, rows_, losses_};
};

}  // namespace strata
