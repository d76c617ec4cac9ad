/// Normalises rows (LayerNorm, RMSNorm) and columns (BatchNorm) on one kind of device.
///
/// The forward computes the statistics; the other functions read them.
///
/// Shapes   x [..., C] contiguous; statistics and sums of gradients fp32.
/// Threads  const, callable from any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// LayerNorm (Ba et al. 2016) if there is a bias; else RMSNorm (Zhang & Sennrich 2019).
/// Shapes  [C] each.
struct Norm {
  at::Tensor gain;
  at::Tensor bias = {};
  double epsilon = 1e-5;
};

/// One number per row, fp32; an RMSNorm has no mean.
struct NormStatistics {
  at::Tensor mean = {}, rstd = {};
};

/// Sums to which the gradients of gain and bias are added.
struct NormSums {
  at::Tensor gain, bias = {};
};

/// Mean and biased variance of each column over the rows, [C] fp32.
struct BatchStatistics {
  at::Tensor mean, variance;
};

class NormPrimitives {
 public:
  virtual ~NormPrimitives() = default;

  virtual at::Tensor norm(const at::Tensor& x, const Norm& norm,
                          NormStatistics& statistics) const = 0;
  /// norm() from its statistics: the same bits.
  virtual at::Tensor norm_again(const at::Tensor& x, const Norm& norm,
                                const NormStatistics& statistics) const = 0;
  /// dy becomes dx; adds the gradients of the norm's weights to `sums`, fp32, in their order.
  virtual void norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                             const NormStatistics& statistics, const NormSums& sums) const = 0;

  // ---- BatchNorm (Ioffe & Szegedy 2015); x [rows, C] fp32
  virtual BatchStatistics batch_statistics(const at::Tensor& x) const = 0;
  virtual at::Tensor batch_norm(const at::Tensor& x, const Norm& norm,
                                const BatchStatistics& statistics) const = 0;
  /// dy becomes dx; the statistics must be x's own. Adds the gradients of gain and bias to `sums`.
  virtual void batch_norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                                   const BatchStatistics& statistics,
                                   const NormSums& sums) const = 0;
};

}  // namespace strata
