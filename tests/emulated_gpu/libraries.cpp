// The CUDA primitives with a CPU's products and attention: by ATen's operators on the CPU, in fp32, on copies.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <atomic>
#include <limits>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/nn/cuda/cuda_primitives.h"

namespace strata {
namespace {

at::Tensor fp32(const at::Tensor& x) { return x.cpu().to(at::kFloat); }

at::Tensor causal_scores(const at::Tensor& q, const at::Tensor& k, double scale) {
  const std::int64_t length = q.size(2);
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  return at::matmul(fp32(q), fp32(k).transpose(2, 3))
      .mul(scale)
      .masked_fill(later, -std::numeric_limits<float>::infinity());
}

// As ATen's CUDA operators lay them out: [B, T, heads, width] seen as [B, heads, T, width].
at::Tensor laid_out(const at::Tensor& heads, const at::Tensor& like) {
  return heads.to(like.scalar_type())
      .transpose(1, 2)
      .contiguous()
      .to(like.device())
      .transpose(1, 2);
}

// With epilogues it stands for cuBLASLt, whose GELU takes what the product is before it is rounded.
class CpuProducts final : public CudaProducts {
 public:
  explicit CpuProducts(bool epilogues) : epilogues_(epilogues) {}

  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    const at::NoGradGuard no_grad;
    at::Tensor y = fp32(x).mm(fp32(weight).t());
    if (bias.defined()) y += fp32(bias);
    return y.to(x.options());
  }
  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override {
    const at::NoGradGuard no_grad;
    dx.copy_(fp32(dy).mm(fp32(weight)));
  }
  void add_weight_gradient(at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override {
    const at::NoGradGuard no_grad;
    sum.copy_(sum.cpu().addmm(fp32(dy).t(), fp32(x)));
  }

  bool has_epilogues() const override { return epilogues_; }
  bool product_and_gelu(at::Tensor& y, at::Tensor& activated, const at::Tensor& x,
                        const at::Tensor& weight, const at::Tensor& bias) const override {
    if (!epilogues_ || !bias.defined()) return false;
    const at::NoGradGuard no_grad;
    const at::Tensor exact = fp32(x).mm(fp32(weight).t()) + fp32(bias);
    y.copy_(exact);
    activated.copy_(at::gelu(exact, "tanh"));
    return true;
  }
  bool input_gradient_of_gelu(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& weight,
                              const at::Tensor& x) const override {
    if (!epilogues_) return false;
    const at::NoGradGuard no_grad;
    dx.copy_(at::gelu_backward(fp32(dy).mm(fp32(weight)), fp32(x), "tanh"));
    return true;
  }
  bool add_weight_gradient_and_sum(at::Tensor& sum, at::Tensor& columns, const at::Tensor& dy,
                                   const at::Tensor& x) const override {
    if (!epilogues_) return false;
    const at::NoGradGuard no_grad;
    add_weight_gradient(sum, dy, x);
    columns.copy_(fp32(dy).sum({0}));
    return true;
  }

 private:
  bool epilogues_;
};

std::atomic<bool> with_epilogues = false;

const CudaProducts& products_in_use() {
  static const CpuProducts plain(false), fused(true);
  return with_epilogues ? fused : plain;
}

class CpuLibraries final : public CudaLibraries {
 public:
  void* stream(const at::Tensor& x) const override {
    STRATA_CHECK(x.is_cuda(), "emulated.stream");
    return Stream::compute({DeviceKind::kCuda, x.device().index()}).native();
  }

  const CudaProducts& products() const override { return products_in_use(); }

  AttentionOutput attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         double scale) const override {
    const at::NoGradGuard no_grad;
    const at::Tensor scores = causal_scores(q, k, scale);
    return {laid_out(at::matmul(scores.softmax(3), fp32(v)), q),
            scores.logsumexp(3).to(q.device())};
  }
  AttentionGradients attend_gradient(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& made,
                                     double scale) const override {
    const at::NoGradGuard no_grad;
    const at::Tensor shares = (causal_scores(q, k, scale) - fp32(made.log_sum).unsqueeze(3)).exp();
    const at::Tensor delta = (fp32(dy) * fp32(made.y)).sum(3, /*keepdim=*/true);
    const at::Tensor dscores = shares * (at::matmul(fp32(dy), fp32(v).transpose(2, 3)) - delta);
    return {laid_out(at::matmul(dscores, fp32(k)).mul(scale), q),
            laid_out(at::matmul(dscores.transpose(2, 3), fp32(q)).mul(scale), q),
            laid_out(at::matmul(shares.transpose(2, 3), fp32(dy)), q)};
  }
};

}  // namespace

void multiply_by(ProductLibrary library) { with_epilogues = library == ProductLibrary::kCublasLt; }

const Primitives& cuda_primitives() {
  static const CpuLibraries libraries;
  [[maybe_unused]] static const bool taken = (multiply_as_environment_says(), true);
  static const CudaPrimitives primitives(libraries);
  return primitives;
}

}  // namespace strata
