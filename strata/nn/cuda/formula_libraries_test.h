/// Replaces a GPU's libraries in tests that run on a host: formulas in fp64, rounded once.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <limits>
#include <vector>

#include "strata/base/errors.h"
#include "strata/nn/cuda/libraries.h"

namespace strata {

inline at::Tensor fp64(const at::Tensor& x) { return x.cpu().to(at::kDouble); }

inline at::Tensor causal_scores(const at::Tensor& q, const at::Tensor& k, double scale) {
  const std::int64_t length = q.size(2);
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  return at::matmul(fp64(q), fp64(k).transpose(2, 3))
      .mul(scale)
      .masked_fill(later, -std::numeric_limits<double>::infinity());
}

/// `epilogues`: whether to compute epilogues; they are counted.
class FormulaProducts final : public CudaProducts {
 public:
  explicit FormulaProducts(bool epilogues) : epilogues_(epilogues) {}
  int epilogues() const { return made_; }

  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    at::Tensor y = fp64(x).mm(fp64(weight).t());
    if (bias.defined()) y = y + fp64(bias);
    return y.to(x.scalar_type());
  }
  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override {
    dx.copy_(fp64(dy).mm(fp64(weight)));
  }
  void add_weight_gradient(at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override {
    STRATA_CHECK(dy.scalar_type() == x.scalar_type(), "test.add_weight_gradient");
    sum.add_(fp64(dy).t().mm(fp64(x)));
  }

  bool has_epilogues() const override { return epilogues_; }
  bool product_and_gelu(at::Tensor& y, at::Tensor& activated, const at::Tensor& x,
                        const at::Tensor& weight, const at::Tensor& bias) const override {
    if (!epilogues_ || !bias.defined()) return false;
    const at::Tensor exact = fp64(x).mm(fp64(weight).t()) + fp64(bias);
    y.copy_(exact);
    activated.copy_(at::gelu(exact, "tanh"));
    return ++made_ > 0;
  }
  bool input_gradient_of_gelu(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& weight,
                              const at::Tensor& x) const override {
    if (!epilogues_) return false;
    STRATA_CHECK(dx.sizes() == x.sizes(), "test.input_gradient_of_gelu");
    dx.copy_(at::gelu_backward(fp64(dy).mm(fp64(weight)), fp64(x), "tanh"));
    return ++made_ > 0;
  }
  bool add_weight_gradient_and_sum(at::Tensor& sum, at::Tensor& columns, const at::Tensor& dy,
                                   const at::Tensor& x) const override {
    if (!epilogues_) return false;
    add_weight_gradient(sum, dy, x);
    columns.copy_(fp64(dy).sum({0}));
    return ++made_ > 0;
  }

 private:
  bool epilogues_;
  mutable std::atomic<int> made_ = 0;
};

/// Formulas in fp64 with the layouts of ATen's CUDA operators; refuses what those would refuse.
class FormulaLibraries final : public CudaLibraries {
 public:
  explicit FormulaLibraries(bool epilogues = false) : products_(epilogues) {}
  /// The number of epilogues that were computed.
  int epilogues() const { return products_.epilogues(); }

  void* stream(const at::Tensor&) const override { return nullptr; }

  const CudaProducts& products() const override { return products_; }

  AttentionOutput attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         double scale) const override {
    check({q, k, v});
    const at::Tensor scores = causal_scores(q, k, scale);
    const at::Tensor y = at::matmul(scores.softmax(3), fp64(v)).to(q.scalar_type());
    return {y.transpose(1, 2).contiguous().transpose(1, 2), scores.logsumexp(3).to(at::kFloat)};
  }
  AttentionGradients attend_gradient(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& made,
                                     double scale) const override {
    check({dy, q, k, v, made.y});
    const at::Tensor shares = (causal_scores(q, k, scale) - fp64(made.log_sum).unsqueeze(3)).exp();
    const at::Tensor delta = (fp64(dy) * fp64(made.y)).sum(3, /*keepdim=*/true);
    const at::Tensor dscores = shares * (at::matmul(fp64(dy), fp64(v).transpose(2, 3)) - delta);
    const at::ScalarType dtype = q.scalar_type();
    return {at::matmul(dscores, fp64(k)).mul(scale).to(dtype),
            at::matmul(dscores.transpose(2, 3), fp64(q)).mul(scale).to(dtype),
            at::matmul(shares.transpose(2, 3), fp64(dy)).to(dtype)};
  }

 private:
  static void check(const std::vector<at::Tensor>& heads) {
    for (const at::Tensor& x : heads)
      STRATA_CHECK(x.size(1) == heads[0].size(1) && x.size(3) % 8 == 0 && x.stride(3) == 1 &&
                       x.scalar_type() == heads[0].scalar_type(),
                   "test.attend");
  }

  FormulaProducts products_;
};

}  // namespace strata
