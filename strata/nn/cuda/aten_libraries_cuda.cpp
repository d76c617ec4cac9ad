// Implements the library operations by ATen's operators, which call cuBLAS, flash attention and
// cuDNN with the process's handles and workspaces. cuBLASLt may compute the products instead
// (lt_products.h).
//
// Attention in 16 bit is flash attention if torch's deterministic algorithms are on (its backward
// then adds in a fixed order), otherwise cuDNN's. Flash attention supports only 16 bit, so fp32
// uses ATen's memory-efficient kernel.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <optional>
#include <tuple>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/cuda/cuda_primitives.h"
#include "strata/nn/cuda/lt_products.h"

namespace strata {
namespace {

enum class AttentionKernel : std::uint8_t { kFlash, kCudnn, kEfficient };

AttentionKernel kernel_for(const at::Tensor& q) {
  if (q.scalar_type() == at::kFloat) return AttentionKernel::kEfficient;
  return at::globalContext().deterministicAlgorithms() ? AttentionKernel::kFlash
                                                       : AttentionKernel::kCudnn;
}

// The random state of dropout, which is off: flash attention and cuDNN require it on the device,
// the other kernel on the host.
at::Tensor no_seed(const at::Tensor& like) {
  return at::empty({2}, like.options().dtype(at::kUInt64));
}
at::Tensor no_offset(const at::Tensor& like) {
  return at::empty({}, like.options().dtype(at::kUInt64));
}

class AtenProducts final : public CudaProducts {
 public:
  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    const at::NoGradGuard no_grad;
    return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
  }

  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override {
    const at::NoGradGuard no_grad;
    at::mm_out(dx, dy, weight);
  }

  void add_weight_gradient(at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override {
    const at::NoGradGuard no_grad;
    if (x.scalar_type() == at::kFloat) {
      sum.addmm_(dy.t(), x);
    } else if (accumulates_wider(x)) {
      at::addmm_out(sum, sum, dy.t(), x, at::kFloat, /*beta=*/1, /*alpha=*/1);
    } else {
      sum.add_(at::mm(dy.t(), x, at::kFloat));
    }
  }

 private:
  // Whether ATen adds 16-bit products to an fp32 sum inside the product; earlier releases refuse
  // summands of another type. Tested once.
  static bool accumulates_wider(const at::Tensor& like) {
    static const bool known = [&] {
      constexpr std::int64_t kSize = 16;
      const at::Tensor ones = at::ones({kSize, kSize}, like.options());
      at::Tensor sum = at::zeros({kSize, kSize}, like.options().dtype(at::kFloat));
      try {
        at::addmm_out(sum, sum, ones, ones, at::kFloat, 1, 1);
      } catch (const c10::Error&) {
        return false;
      }
      return true;
    }();
    return known;
  }
};

const CudaProducts& library_products() {
  static const AtenProducts products;
  return products;
}

std::atomic<const CudaProducts*> products_in_use = &library_products();

class AtenLibraries final : public CudaLibraries {
 public:
  void* stream(const at::Tensor& x) const override {
    STRATA_CHECK(x.device().index() == c10::cuda::current_device(), "nn.cuda_stream");
    return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
  }

  const CudaProducts& products() const override { return *products_in_use; }

  AttentionOutput attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         double scale) const override {
    const at::NoGradGuard no_grad;
    constexpr double kNoDropout = 0;
    switch (kernel_for(q)) {
      case AttentionKernel::kFlash: {
        const auto made = at::_scaled_dot_product_flash_attention(
            q, k, v, kNoDropout, /*is_causal=*/true, /*return_debug_mask=*/false, scale);
        return {std::get<0>(made), std::get<1>(made)};
      }
      case AttentionKernel::kCudnn: {
        const auto made = at::_scaled_dot_product_cudnn_attention(
            q, k, v, /*attn_bias=*/std::nullopt, /*compute_log_sumexp=*/true, kNoDropout,
            /*is_causal=*/true, /*return_debug_mask=*/false, scale);
        // cuDNN lays out its output like the queries.
        return {std::get<0>(made).transpose(1, 2).contiguous().transpose(1, 2), std::get<1>(made)};
      }
      case AttentionKernel::kEfficient: {
        const auto made = at::_scaled_dot_product_efficient_attention(
            q, k, v, /*attn_bias=*/std::nullopt, /*compute_log_sumexp=*/true, kNoDropout,
            /*is_causal=*/true, scale);
        return {std::get<0>(made), std::get<1>(made)};
      }
    }
    STRATA_CHECK(false, "nn.cuda_attend");
    return {};
  }

  AttentionGradients attend_gradient(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& made,
                                     double scale) const override {
    const at::NoGradGuard no_grad;
    constexpr double kNoDropout = 0;
    const at::Tensor none;
    switch (kernel_for(q)) {
      case AttentionKernel::kFlash: {
        const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
            dy, q, k, v, made.y, made.log_sum, none, none, q.size(2), k.size(2), kNoDropout,
            /*is_causal=*/true, no_seed(q), no_offset(q), scale);
        return {dq, dk, dv};
      }
      case AttentionKernel::kCudnn: {
        const auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
            dy, q, k, v, made.y, made.log_sum, no_seed(q), no_offset(q), none, none, none,
            q.size(2), k.size(2), kNoDropout, /*is_causal=*/true, scale);
        return {dq, dk, dv};
      }
      case AttentionKernel::kEfficient: {
        const at::Tensor seed = at::zeros({}, host_options(at::kLong));
        const auto [dq, dk, dv, dbias] = at::_scaled_dot_product_efficient_attention_backward(
            dy, q, k, v, /*attn_bias=*/none, made.y, made.log_sum, seed, seed, kNoDropout,
            /*grad_input_mask=*/{true, true, true, false}, /*is_causal=*/true, scale);
        return {dq, dk, dv};
      }
    }
    STRATA_CHECK(false, "nn.cuda_attend_gradient");
    return {};
  }
};

}  // namespace

void multiply_by(ProductLibrary library) {
  const CudaProducts* products =
      library == ProductLibrary::kAten ? &library_products() : lt_products();
  if (!products)
    throw UserError(
        {.operation = "nn.cuda_products",
         .what = "this build was made without cuBLASLt's headers",
         .expected = "aten",
         .got = "cublaslt",
         .fix = "unset STRATA_CUDA_PRODUCTS, or build where cublasLt.h is (docs/cuda.md)"});
  products_in_use = products;
}

const Primitives& cuda_primitives() {
  [[maybe_unused]] static const bool there = (cuda_backend().require(0), true);
  static const AtenLibraries libraries;
  [[maybe_unused]] static const bool chosen = multiply_as_environment_says();
  static const CudaPrimitives primitives(libraries);
  return primitives.all();
}

const Primitives& cuda_aten_primitives() {
  [[maybe_unused]] static const bool there = (cuda_backend().require(0), true);
  [[maybe_unused]] static const bool fits = (refuse_product_library_with_aten(), true);
  return aten_primitives();
}

}  // namespace strata
