/// Implements the primitives on a host: products of MKL and oneDNN, attention of ATen, Highway
/// kernels for the rest, cut into pieces for the rank's thread pool where this doesn't change bits.
///
/// Operands of 16-bit products are widened to fp32 unless the processor is faster in 16 bit. MKL
/// computes fp32 products if it uses all of the processor, otherwise oneDNN
/// (device/fast_products.h).
#pragma once

#include "strata/nn/primitives/primitives.h"

namespace strata {

class HostProductPrimitives final : public ProductPrimitives {
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
};

class HostNormPrimitives final : public NormPrimitives {
 public:
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

class HostElementPrimitives final : public ElementPrimitives {
 public:
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

class HostInteractionPrimitives final : public InteractionPrimitives {
 public:
  at::Tensor pairwise_dots(const at::Tensor& first, const at::Tensor& rest,
                           std::int64_t width) const override;
  void pairwise_dots_gradient(const at::Tensor& first, const at::Tensor& rest, std::int64_t width,
                              const at::Tensor& dy, const at::Tensor& dfirst,
                              const at::Tensor& drest) const override;
};

class HostAttentionPrimitives final : public AttentionPrimitives {
 public:
  void rotate(const at::Tensor& x, const at::Tensor& table, RopeTurn turn) const override;
  Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;
  void attend_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const Attended& attended, const at::Tensor& dy, const at::Tensor& dq,
                       const at::Tensor& dk, const at::Tensor& dv) const override;
  void attend_block(const AttentionBlock& block, const Attended& so_far) const override;
  void attend_block_gradient(const AttentionBlock& block, const Attended& attended,
                             const at::Tensor& dy, const at::Tensor& dq, const at::Tensor& dk,
                             const at::Tensor& dv) const override;
  at::Tensor attend_pages(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                          const PagedText& text) const override;
  Attended attend_sparse(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const PatternOfHeads& heads) const override;
  void attend_sparse_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const Attended& attended, const at::Tensor& dy, const at::Tensor& dq,
                              const at::Tensor& dk, const at::Tensor& dv,
                              const PatternOfHeads& heads) const override;
  at::Tensor attend_sparse_pages(const at::Tensor& q, const at::Tensor& keys,
                                 const at::Tensor& values, const PagedText& text,
                                 const PatternOfHeads& heads) const override;
};

class HostRowPrimitives final : public RowPrimitives {
 public:
  at::Tensor gather(const at::Tensor& tokens, const at::Tensor& weight,
                    std::int64_t first) const override;
  void add_rows(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& sum,
                std::int64_t first) const override;
  void add_positions(const at::Tensor& x, const at::Tensor& positions) const override;
  void add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const override;
};

class HostLossPrimitives final : public LossPrimitives {
 public:
  void add_loss(const at::Tensor& loss, at::Tensor& logits, const at::Tensor& targets,
                const kernels::CrossEntropy& what, const TensorParallel* group, bool gradient,
                const StepScalars* scalars) const override;
  void add_logistic_loss(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& labels,
                         double scale, const at::Tensor& gradient,
                         const StepScalars* scalars) const override;
};

// ---- Memory of 16-bit products in addition to operands and result, so that plans can count it.
// Widened: the weight in fp32 and a piece of the rows, input and output. In the processor's own 16
// bit: a weight gradient until it is added to the fp32 one. fp32: nothing.

/// Whether this processor widens operands of this type to fp32.
bool widens_products(c10::ScalarType dtype);

/// For a product of `rows` rows, in either direction; at most 64 may need less.
std::int64_t host_product_bytes(c10::ScalarType dtype, std::int64_t rows, std::int64_t in,
                                std::int64_t out);
std::int64_t host_weight_gradient_bytes(c10::ScalarType dtype, std::int64_t rows, std::int64_t in,
                                        std::int64_t out);

/// Whether oneDNN multiplies fp32 matrices of more than one row: the processor has AVX-512 that MKL
/// does not use, the system has oneDNN, and ATEN_CPU_CAPABILITY does not limit libtorch. Bits
/// depend on it.
bool multiplies_by_onednn();

/// For tests: sets multiplies_by_onednn() while the object lives, if oneDNN is installed.
class MultiplyByOneDnn {
 public:
  explicit MultiplyByOneDnn(bool onednn);
  ~MultiplyByOneDnn();
  MultiplyByOneDnn(const MultiplyByOneDnn&) = delete;
  MultiplyByOneDnn& operator=(const MultiplyByOneDnn&) = delete;
};

/// For tests: sets widens_products() while the object lives.
class WidenProducts {
 public:
  explicit WidenProducts(bool widen);
  ~WidenProducts();
  WidenProducts(const WidenProducts&) = delete;
  WidenProducts& operator=(const WidenProducts&) = delete;
};

}  // namespace strata
