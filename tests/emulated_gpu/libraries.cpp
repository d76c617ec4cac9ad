// The CUDA primitives with a CPU's products and attention: by ATen's operators on the CPU, in fp32.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <atomic>
#include <limits>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/nn/cuda/cuda_primitives.h"
#include "tests/emulated_gpu/work.h"

namespace strata {
namespace {

using emulated::give;
using emulated::on_host;

at::Tensor fp32(const at::Tensor& x) { return x.to(at::kFloat); }

at::Tensor causal_scores(const at::Tensor& q, const at::Tensor& k, double scale) {
  const std::int64_t length = q.size(2);
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  return at::matmul(fp32(q), fp32(k).transpose(2, 3))
      .mul(scale)
      .masked_fill(later, -std::numeric_limits<float>::infinity());
}

// As ATen's CUDA operators lay them out: [B, T, heads, width] seen as [B, heads, T, width].
at::Tensor heads_like(const at::Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

void write(const at::Tensor& to, const at::Tensor& value) { at::Tensor(to).copy_(value); }

// With epilogues it stands for cuBLASLt, whose GELU takes what the product is before it is rounded.
class CpuProducts final : public CudaProducts {
 public:
  explicit CpuProducts(bool epilogues) : epilogues_(epilogues) {}

  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    const at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    give([x = on_host(x), w = on_host(weight), bias = on_host(bias), y = on_host(y)] {
      const at::NoGradGuard no_grad;
      const at::Tensor product = fp32(x).mm(fp32(w).t());
      write(y, bias.defined() ? product + fp32(bias) : product);
    });
    return y;
  }
  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override {
    give([dx = on_host(dx), dy = on_host(dy), w = on_host(weight)] {
      const at::NoGradGuard no_grad;
      write(dx, fp32(dy).mm(fp32(w)));
    });
  }
  void add_weight_gradient(at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override {
    give([sum = on_host(sum), dy = on_host(dy), x = on_host(x)] {
      const at::NoGradGuard no_grad;
      write(sum, sum.addmm(fp32(dy).t(), fp32(x)));
    });
  }

  bool has_epilogues() const override { return epilogues_; }
  bool product_and_gelu(at::Tensor& y, at::Tensor& activated, const at::Tensor& x,
                        const at::Tensor& weight, const at::Tensor& bias) const override {
    if (!epilogues_ || !bias.defined()) return false;
    give([y = on_host(y), activated = on_host(activated), x = on_host(x), w = on_host(weight),
          bias = on_host(bias)] {
      const at::NoGradGuard no_grad;
      const at::Tensor exact = fp32(x).mm(fp32(w).t()) + fp32(bias);
      write(y, exact);
      write(activated, at::gelu(exact, "tanh"));
    });
    return true;
  }
  bool input_gradient_of_gelu(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& weight,
                              const at::Tensor& x) const override {
    if (!epilogues_) return false;
    give([dx = on_host(dx), dy = on_host(dy), w = on_host(weight), x = on_host(x)] {
      const at::NoGradGuard no_grad;
      write(dx, at::gelu_backward(fp32(dy).mm(fp32(w)), fp32(x), "tanh"));
    });
    return true;
  }
  bool add_weight_gradient_and_sum(at::Tensor& sum, at::Tensor& columns, const at::Tensor& dy,
                                   const at::Tensor& x) const override {
    if (!epilogues_) return false;
    add_weight_gradient(sum, dy, x);
    give([columns = on_host(columns), dy = on_host(dy)] {
      const at::NoGradGuard no_grad;
      write(columns, fp32(dy).sum({0}));
    });
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
    AttentionOutput made{
        heads_like(q), at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
    give([q = on_host(q), k = on_host(k), v = on_host(v), y = on_host(made.y),
          log_sum = on_host(made.log_sum), scale] {
      const at::NoGradGuard no_grad;
      const at::Tensor scores = causal_scores(q, k, scale);
      write(y, at::matmul(scores.softmax(3), fp32(v)));
      write(log_sum, scores.logsumexp(3));
    });
    return made;
  }
  AttentionGradients attend_gradient(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& made,
                                     double scale) const override {
    AttentionGradients gradients{heads_like(q), heads_like(k), heads_like(v)};
    give([dy = on_host(dy), q = on_host(q), k = on_host(k), v = on_host(v), y = on_host(made.y),
          log_sum = on_host(made.log_sum), dq = on_host(gradients.q), dk = on_host(gradients.k),
          dv = on_host(gradients.v), scale] {
      const at::NoGradGuard no_grad;
      const at::Tensor shares = (causal_scores(q, k, scale) - log_sum.unsqueeze(3)).exp();
      const at::Tensor delta = (fp32(dy) * fp32(y)).sum(3, /*keepdim=*/true);
      const at::Tensor dscores = shares * (at::matmul(fp32(dy), fp32(v).transpose(2, 3)) - delta);
      write(dq, at::matmul(dscores, fp32(k)).mul(scale));
      write(dk, at::matmul(dscores.transpose(2, 3), fp32(q)).mul(scale));
      write(dv, at::matmul(shares.transpose(2, 3), fp32(dy)));
    });
    return gradients;
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
