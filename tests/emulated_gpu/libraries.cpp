// Implements the CUDA primitives with formulas instead of a GPU's libraries, as enqueued work.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <atomic>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/cuda/cuda_primitives.h"
#include "strata/nn/cuda/formula_libraries_test.h"
#include "tests/emulated_gpu/work.h"

namespace strata {
namespace {

using emulated::on_host;

// Enqueues the formulas on host tensors.
template <typename F, typename... Tensors>
void give(F formula, const Tensors&... tensors) {
  emulated::give([formula, ... tensors = on_host(tensors)]() mutable {
    const at::NoGradGuard no_grad;
    formula(tensors...);
  });
}

// With epilogues it replaces cuBLASLt, whose GELU reads the product before it is rounded.
class EmulatedProducts final : public CudaProducts {
 public:
  explicit EmulatedProducts(bool epilogues) : formulas_(epilogues) {}

  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    const at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    give([this](auto& y, auto& x, auto& w, auto& bias) { y.copy_(formulas_.product(x, w, bias)); },
         y, x, weight, bias);
    return y;
  }
  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override {
    give([this](auto& dx, auto& dy, auto& w) { formulas_.input_gradient(dx, dy, w); }, dx, dy,
         weight);
  }
  void add_weight_gradient(at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override {
    give([this](auto& sum, auto& dy, auto& x) { formulas_.add_weight_gradient(sum, dy, x); }, sum,
         dy, x);
  }

  bool has_epilogues() const override { return formulas_.has_epilogues(); }
  bool product_and_gelu(at::Tensor& y, at::Tensor& activated, const at::Tensor& x,
                        const at::Tensor& weight, const at::Tensor& bias) const override {
    if (!has_epilogues() || !bias.defined()) return false;
    give([this](auto& y, auto& activated, auto& x, auto& w,
                auto& bias) { formulas_.product_and_gelu(y, activated, x, w, bias); },
         y, activated, x, weight, bias);
    return true;
  }
  bool input_gradient_of_gelu(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& weight,
                              const at::Tensor& x) const override {
    if (!has_epilogues()) return false;
    give([this](auto& dx, auto& dy, auto& w,
                auto& x) { formulas_.input_gradient_of_gelu(dx, dy, w, x); },
         dx, dy, weight, x);
    return true;
  }
  bool add_weight_gradient_and_sum(at::Tensor& sum, at::Tensor& columns, const at::Tensor& dy,
                                   const at::Tensor& x) const override {
    if (!has_epilogues()) return false;
    give([this](auto& sum, auto& columns, auto& dy,
                auto& x) { formulas_.add_weight_gradient_and_sum(sum, columns, dy, x); },
         sum, columns, dy, x);
    return true;
  }

 private:
  FormulaProducts formulas_;
};

std::atomic<bool> with_epilogues = false;

const CudaProducts& products_in_use() {
  static const EmulatedProducts plain(false), fused(true);
  return with_epilogues ? fused : plain;
}

// The layout of ATen's CUDA operators: [B, T, heads, width] viewed as [B, heads, T, width].
at::Tensor heads_like(const at::Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

class EmulatedLibraries final : public CudaLibraries {
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
    give(
        [this, scale](auto& y, auto& log_sum, auto& q, auto& k, auto& v) {
          const AttentionOutput out = formulas_.attend(q, k, v, scale);
          y.copy_(out.y);
          log_sum.copy_(out.log_sum);
        },
        made.y, made.log_sum, q, k, v);
    return made;
  }
  AttentionGradients attend_gradient(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& made,
                                     double scale) const override {
    AttentionGradients gradients{heads_like(q), heads_like(k), heads_like(v)};
    give(
        [this, scale](auto& dq, auto& dk, auto& dv, auto& dy, auto& q, auto& k, auto& v, auto& y,
                      auto& log_sum) {
          const AttentionGradients out =
              formulas_.attend_gradient(dy, q, k, v, {y, log_sum}, scale);
          dq.copy_(out.q);
          dk.copy_(out.k);
          dv.copy_(out.v);
        },
        gradients.q, gradients.k, gradients.v, dy, q, k, v, made.y, made.log_sum);
    return gradients;
  }

 private:
  FormulaLibraries formulas_;
};

}  // namespace

void multiply_by(ProductLibrary library) { with_epilogues = library == ProductLibrary::kCublasLt; }

const Primitives& cuda_primitives() {
  static const EmulatedLibraries libraries;
  [[maybe_unused]] static const bool taken = (multiply_as_environment_says(), true);
  static const CudaPrimitives primitives(libraries);
  return primitives.all();
}

const Primitives& cuda_aten_primitives() {
  [[maybe_unused]] static const bool fits = (refuse_product_library_with_aten(), true);
  return aten_primitives();
}

}  // namespace strata
