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

#include "strata/device/device.h"
#include "strata/nn/kernels/kernels.h"

namespace strata {

class TensorParallel;
struct StepScalars;

/// LayerNorm (Ba et al. 2016) if there is a bias; else RMSNorm (Zhang & Sennrich 2019).
/// Shapes  [C] each.
struct Norm {
  at::Tensor gain;
  at::Tensor bias = {};
  double epsilon = 1e-5;
};

/// One number a row, fp32; an RMSNorm has no mean.
struct NormStatistics {
  at::Tensor mean = {}, rstd = {};
};

/// To which the gradients of gain and bias are added.
struct NormSums {
  at::Tensor gain, bias = {};
};

/// Mean and biased variance of each column over the rows, [C] fp32.
struct BatchStatistics {
  at::Tensor mean, variance;
};

/// kGelu: tanh form (Hendrycks & Gimpel 2016). kSwiglu (Shazeer 2020): silu(gate) * up of rows
/// [gate | up], half as wide. kRelu: max(x, 0).
enum class Activation : std::uint8_t { kGelu, kSwiglu, kRelu };

enum class RopeTurn : std::uint8_t { kForward, kBack };

/// Attention's output [B, T, heads * width] and one number a row and head, [B, heads, T].
struct Attended {
  at::Tensor y, log_sum;
};

/// Which elements dropout keeps: a rank has part `part` of each sample.
struct MaskOfSamples {
  kernels::DropoutMask mask;
  std::int64_t first_sample;
  std::int64_t part;
  /// In the device's memory: the mask's key is the run's, and the device mixes their step into it. Null:
  /// the key is the step's already.
  const StepScalars* scalars = nullptr;
};

/// Rows of a chunk of the head: a constant of a kind of device, because the weight gradient's bits
/// depend on it. A host's logits should stay in its cache, a GPU must be filled.
constexpr std::int64_t head_chunk_rows(DeviceKind kind) {
  return kind == DeviceKind::kCuda ? 8192 : 1024;
}

class Primitives {
 public:
  virtual DeviceKind kind() const = 0;

  virtual ~Primitives() = default;

  // ---- Products
  /// x weightᵀ, plus the bias if it is defined.
  virtual at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) const = 0;
  /// The same as add_loss() takes it: in fp32, unrounded where that costs nothing, or in the type of x.
  virtual at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const = 0;
  /// A gradient of logits as the next two take it beside operands of `dtype`: itself, or rounded.
  virtual at::Tensor as_operand(const at::Tensor& gradient, at::ScalarType dtype) const = 0;
  /// dx = dy weight
  virtual void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                              const at::Tensor& weight) const = 0;
  /// sum += dyᵀ x, sum fp32.
  virtual void add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                                   const at::Tensor& x) const = 0;
  /// sum += column sums of x, rows in a fixed order: on a host the ascending one.
  virtual void add_column_sums(const at::Tensor& sum, const at::Tensor& x) const = 0;

  // ---- Products and what stands beside them: one after the other unless a device makes both at once
  /// product(). Where it makes what an activation behind it wants in passing, that is put into `activated`: as
  /// exact as activate() of the result, but not its bits.
  virtual at::Tensor product_ahead_of(Activation kind, const at::Tensor& x,
                                      const at::Tensor& weight, const at::Tensor& bias,
                                      at::Tensor& activated) const;
  /// activation_gradient() at x [rows, in] of dy weight.
  virtual at::Tensor input_gradient_behind(Activation kind, const at::Tensor& x,
                                           const at::Tensor& dy, const at::Tensor& weight,
                                           at::Tensor* again) const;
  /// add_weight_gradient(), and add_column_sums() of dy to `bias_sum`.
  virtual void add_linear_gradients(const at::Tensor& sum, const at::Tensor& bias_sum,
                                    const at::Tensor& dy, const at::Tensor& x) const;

  // ---- Norms; statistics are made by the first and read by the others
  virtual at::Tensor norm(const at::Tensor& x, const Norm& norm,
                          NormStatistics& statistics) const = 0;
  virtual at::Tensor norm_again(const at::Tensor& x, const Norm& norm,
                                const NormStatistics& statistics) const = 0;
  /// dy becomes dx; adds the gradients of the norm's weights to `sums`, fp32, in their order.
  virtual void norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                             const NormStatistics& statistics, const NormSums& sums) const = 0;

  // ---- BatchNorm (Ioffe & Szegedy 2015); x [rows, C] fp32, of which it makes the statistics
  virtual BatchStatistics batch_statistics(const at::Tensor& x) const = 0;
  virtual at::Tensor batch_norm(const at::Tensor& x, const Norm& norm,
                                const BatchStatistics& statistics) const = 0;
  /// dy becomes dx, where the statistics are x's own; adds the gradients of gain and bias to `sums`.
  virtual void batch_norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                                   const BatchStatistics& statistics,
                                   const NormSums& sums) const = 0;

  // ---- Activations and what is added to them
  virtual at::Tensor activate(Activation kind, const at::Tensor& x) const = 0;
  /// The gradient at x. Overwrites dy; `again`, unless it is null, becomes activate(x).
  virtual at::Tensor activation_gradient(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                         at::Tensor* again) const = 0;
  virtual at::Tensor add(const at::Tensor& a, const at::Tensor& b) const = 0;
  /// x [..., C] += bias [C]
  virtual void add_bias(const at::Tensor& x, const at::Tensor& bias) const = 0;
  /// residual + mask * x; without a residual mask * x.
  virtual at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x,
                                 const MaskOfSamples& mask) const = 0;

  /// a * b + c, elementwise; without c a * b.
  virtual at::Tensor multiply_add(const at::Tensor& a, const at::Tensor& b,
                                  const at::Tensor& c) const = 0;

  // ---- Interactions, fp32; vectors of `width` elements: first [B, width] or undefined, rest
  // [B, n width]
  /// [first | x_i . x_j for j < i], rows in ascending i, then j.
  virtual at::Tensor pairwise_dots(const at::Tensor& first, const at::Tensor& rest,
                                   std::int64_t width) const = 0;
  /// Writes the gradients dfirst and drest.
  virtual void pairwise_dots_gradient(const at::Tensor& first, const at::Tensor& rest,
                                      std::int64_t width, const at::Tensor& dy,
                                      const at::Tensor& dfirst, const at::Tensor& drest) const = 0;

  // ---- Attention, causal; q, k, v [B, T, heads, width], heads of a token side by side
  /// Turns in place; table [T, width] fp32.
  virtual void rotate(const at::Tensor& x, const at::Tensor& table, RopeTurn turn) const = 0;
  virtual Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const = 0;
  /// Writes dq, dk, dv, shaped as q, k, v.
  virtual void attend_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const Attended& attended, const at::Tensor& dy, const at::Tensor& dq,
                               const at::Tensor& dk, const at::Tensor& dv) const = 0;
  /// From the last tokens of a text to all of them: q [B, T, heads, width], keys and values
  /// [B, heads, positions, width], of which the last T are q's own. The output alone.
  virtual at::Tensor attend_last(const at::Tensor& q, const at::Tensor& keys,
                                 const at::Tensor& values) const = 0;

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
  /// The sum of the rows' losses in a fixed order (on a host the rows'), added to `loss` [1] fp64; logits,
  /// as logits() makes them, become their gradient if it is wanted. Targets [rows] int64. The group's
  /// ranks add up their rows' maxima and sums. With scalars, in the device's memory, the gradient's scale
  /// is their loss_scale * inverse_valid_tokens instead of what.scale.
  virtual void add_loss(const at::Tensor& loss, at::Tensor& logits, const at::Tensor& targets,
                        const kernels::CrossEntropy& what, const TensorParallel* group,
                        bool gradient, const StepScalars* scalars) const = 0;
  /// Of logits [B] and labels [B], fp32, a label in [0, 1] or, where it doesn't count, below 0: adds
  /// the sum of the binary cross-entropies, made in fp64 and in that order, to `loss` [1] fp64. Writes
  /// `scale` (or that of the scalars, as above) times its gradient at the logits if `gradient` is defined.
  virtual void add_logistic_loss(const at::Tensor& loss, const at::Tensor& logits,
                                 const at::Tensor& labels, double scale, const at::Tensor& gradient,
                                 const StepScalars* scalars) const = 0;
};

/// Those of the tensor's kind of device.
/// Errors  UserError: the build has none for it.
const Primitives& primitives(const at::Tensor& x);

/// For tests: while one lives, what tensors on the host are given to in this thread.
class HostPrimitivesScope {
 public:
  explicit HostPrimitivesScope(const Primitives& primitives);
  ~HostPrimitivesScope();
  HostPrimitivesScope(const HostPrimitivesScope&) = delete;
  HostPrimitivesScope& operator=(const HostPrimitivesScope&) = delete;
};

const Primitives& host_primitives();
const Primitives& cuda_primitives();

}  // namespace strata
