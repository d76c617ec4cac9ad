// Formulas in fp32 instead of ATen's own norms: those keep statistics of 16-bit rows in 16 bit on
// some devices.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/aten/aten_scope.h"

namespace strata {
namespace {

at::Tensor matrix_of(const at::Tensor& x) { return as_float(x).reshape({-1, x.size(-1)}); }

// (x - mean) * rstd of rows.
at::Tensor normed_rows(const at::Tensor& rows, const NormStatistics& statistics) {
  const at::Tensor centred = statistics.mean.defined() ? rows - statistics.mean.unsqueeze(1) : rows;
  return centred * statistics.rstd.unsqueeze(1);
}

void write_norm(const at::Tensor& y, const at::Tensor& rows, const Norm& norm,
                const NormStatistics& statistics) {
  at::Tensor scaled = normed_rows(rows, statistics).mul_(as_float(norm.gain));
  if (norm.bias.defined()) scaled.add_(as_float(norm.bias));
  y.copy_(scaled.view(y.sizes()));
}

// (x - mean) / sqrt(variance + epsilon) of columns.
at::Tensor normed_columns(const at::Tensor& x, const Norm& norm,
                          const BatchStatistics& statistics) {
  return (x - statistics.mean) * statistics.variance.add(norm.epsilon).rsqrt();
}

class AtenNormPrimitives final : public NormPrimitives {
 public:
  at::Tensor norm(const at::Tensor& x, const Norm& norm,
                  NormStatistics& statistics) const override {
    at::Tensor y = at::empty_like(x);
    const at::TensorOptions options = x.options().dtype(at::kFloat);
    const std::int64_t count = x.numel() / x.size(-1);
    statistics.rstd = at::empty({count}, options);
    if (norm.bias.defined()) statistics.mean = at::empty({count}, options);
    const AtenScope scope;
    const at::Tensor rows = matrix_of(x);
    at::Tensor centred = rows;
    if (norm.bias.defined()) {
      statistics.mean.copy_(rows.mean(1));
      centred = rows - statistics.mean.unsqueeze(1);
    }
    statistics.rstd.copy_(centred.square().mean(1).add_(norm.epsilon).rsqrt_());
    write_norm(y, rows, norm, statistics);
    return y;
  }

  at::Tensor norm_again(const at::Tensor& x, const Norm& norm,
                        const NormStatistics& statistics) const override {
    at::Tensor y = at::empty_like(x);
    const AtenScope scope;
    write_norm(y, matrix_of(x), norm, statistics);
    return y;
  }

  // dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gain; an RMSNorm has no mean(g).
  void norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                     const NormStatistics& statistics, const NormSums& sums) const override {
    const AtenScope scope;
    const at::Tensor hat = normed_rows(matrix_of(x), statistics), gradient = matrix_of(dy);
    sums.gain.add_((gradient * hat).sum(0));
    if (statistics.mean.defined()) sums.bias.add_(gradient.sum(0));
    const at::Tensor scaled = gradient * as_float(norm.gain);
    at::Tensor dx = scaled - hat * (scaled * hat).mean(1, /*keepdim=*/true);
    if (statistics.mean.defined()) dx.sub_(scaled.mean(1, /*keepdim=*/true));
    dy.copy_(dx.mul_(statistics.rstd.unsqueeze(1)).view(dy.sizes()));
  }

  BatchStatistics batch_statistics(const at::Tensor& x) const override {
    const BatchStatistics statistics{at::empty({x.size(1)}, x.options()),
                                     at::empty({x.size(1)}, x.options())};
    const AtenScope scope;
    statistics.mean.copy_(x.mean(0));
    statistics.variance.copy_((x - statistics.mean).square_().mean(0));
    return statistics;
  }

  at::Tensor batch_norm(const at::Tensor& x, const Norm& norm,
                        const BatchStatistics& statistics) const override {
    at::Tensor y = at::empty_like(x);
    const AtenScope scope;
    y.copy_(normed_columns(x, norm, statistics).mul_(norm.gain).add_(norm.bias));
    return y;
  }

  void batch_norm_gradient(const at::Tensor& x, const at::Tensor& dy, const Norm& norm,
                           const BatchStatistics& statistics, const NormSums& sums) const override {
    const AtenScope scope;
    const at::Tensor hat = normed_columns(x, norm, statistics);
    const at::Tensor gain = (dy * hat).sum(0), bias = dy.sum(0);
    sums.gain.add_(gain);
    sums.bias.add_(bias);
    const double share = 1.0 / static_cast<double>(x.size(0));
    const at::Tensor factor = norm.gain * statistics.variance.add(norm.epsilon).rsqrt();
    dy.copy_((dy - bias * share - hat * (gain * share)) * factor);
  }
};

}  // namespace

const NormPrimitives& aten_norms() {
  static const AtenNormPrimitives norms;
  return norms;
}

}  // namespace strata
