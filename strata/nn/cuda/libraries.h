/// Says what the CUDA primitives ask of libraries: the stream, products and attention. Everything else is
/// kernels of our own, so that tests can put a host's libraries here and run the rest on a host.
///
/// Shapes   as in primitives.h; attention's q, k, v, dy, y are [B, heads, T, width] views of [B, T, heads,
///          width], with as many heads of keys as of queries, width a multiple of 8.
/// Threads  const, callable from any thread; the tensors' device is the calling thread's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace strata {

/// Products: operands of one type, sums fp32 inside.
///
/// What stands beside a product may be made by it (an epilogue); functions that answer `false` have done
/// nothing, and the caller takes the product and a kernel.
class CudaProducts {
 public:
  virtual ~CudaProducts() = default;

  /// x weightᵀ, plus the bias if it is defined, in the type of x.
  virtual at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) const = 0;
  /// dx = dy weight
  virtual void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                              const at::Tensor& weight) const = 0;
  /// sum += dyᵀ x; sum fp32, not rounded to the type of the operands in between.
  virtual void add_weight_gradient(at::Tensor& sum, const at::Tensor& dy,
                                   const at::Tensor& x) const = 0;

  // ---- With epilogues
  /// Whether it has any: else nobody makes room for their results.
  virtual bool has_epilogues() const { return false; }
  /// y = product(x, weight, bias), activated = gelu(y) of y before it is rounded.
  virtual bool product_and_gelu(at::Tensor& /*y*/, at::Tensor& /*activated*/,
                                const at::Tensor& /*x*/, const at::Tensor& /*weight*/,
                                const at::Tensor& /*bias*/) const {
    return false;
  }
  /// dx = (dy weight) gelu'(x)
  virtual bool input_gradient_of_gelu(at::Tensor& /*dx*/, const at::Tensor& /*dy*/,
                                      const at::Tensor& /*weight*/, const at::Tensor& /*x*/) const {
    return false;
  }
  /// As add_weight_gradient(); columns [out] fp32 = column sums of dy.
  virtual bool add_weight_gradient_and_sum(at::Tensor& /*sum*/, at::Tensor& /*columns*/,
                                           const at::Tensor& /*dy*/,
                                           const at::Tensor& /*x*/) const {
    return false;
  }
};

/// What attention's backward takes beside its inputs, as the library that made it wants it.
struct AttentionOutput {
  at::Tensor y, log_sum;
};

struct AttentionGradients {
  at::Tensor q, k, v;
};

class CudaLibraries {
 public:
  virtual ~CudaLibraries() = default;

  /// The cudaStream_t on which the caller's work goes to the tensor's device.
  virtual void* stream(const at::Tensor& x) const = 0;

  virtual const CudaProducts& products() const = 0;

  // ---- Attention, causal, scores times `scale`
  virtual AttentionOutput attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 double scale) const = 0;
  virtual AttentionGradients attend_gradient(const at::Tensor& dy, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const AttentionOutput& made, double scale) const = 0;
};

/// Which library multiplies on a GPU from now on. cuBLASLt's own interface has epilogues and keeps an algorithm a
/// shape; it is not the default before it has run and was measured there (bench/gpu).
enum class ProductLibrary : std::uint8_t { kAten, kCublasLt };

/// For tests and benches. Errors  UserError: built without that library's headers.
void multiply_by(ProductLibrary library);

/// Chooses the one that STRATA_CUDA_PRODUCTS names (aten, cublaslt), so that a run may be measured
/// with either; without it nothing happens. Returns whether it names one.
/// Errors  UserError: it names none that there is, or see above.
bool multiply_as_environment_says();

/// Errors  UserError: the environment names a library that ATen's primitives do not use.
void refuse_product_library_beside_aten();

}  // namespace strata
