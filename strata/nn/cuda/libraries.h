/// Defines what the CUDA primitives need from libraries: the stream, products and attention. All
/// else is Strata's kernels, so that tests can use a host's libraries and run the rest on a host.
///
/// Shapes   as in primitives.h; attention's q, k, v, dy, y are [B, heads, T, width] views of [B, T,
///          heads, width], with equally many heads of keys and queries, width a multiple of 8.
/// Threads  const, callable from any thread; the tensors are on the calling thread's device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace strata {

/// Products: operands of one type, sums fp32 inside.
///
/// A product may also compute an operation that follows it (an epilogue). Functions that return
/// `false` have done nothing; the caller then uses the product and a kernel.
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
  /// Whether there are any: otherwise callers do not allocate their results.
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
  /// Like add_weight_gradient(); columns [out] fp32 = column sums of dy.
  virtual bool add_weight_gradient_and_sum(at::Tensor& /*sum*/, at::Tensor& /*columns*/,
                                           const at::Tensor& /*dy*/,
                                           const at::Tensor& /*x*/) const {
    return false;
  }
};

/// The outputs that attention's backward needs in addition to its inputs, in the library's layout.
struct AttentionOutput {
  at::Tensor y, log_sum;
};

struct AttentionGradients {
  at::Tensor q, k, v;
};

class CudaLibraries {
 public:
  virtual ~CudaLibraries() = default;

  /// The cudaStream_t for the caller's work on the tensor's device.
  virtual void* stream(const at::Tensor& x) const = 0;

  virtual const CudaProducts& products() const = 0;

  // ---- Attention, causal, scores times `scale`
  virtual AttentionOutput attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 double scale) const = 0;
  virtual AttentionGradients attend_gradient(const at::Tensor& dy, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const AttentionOutput& made, double scale) const = 0;
};

/// Selects the library for products on a GPU. cuBLASLt's own interface has epilogues and keeps one
/// algorithm per shape; it becomes the default only after a measurement on a GPU (bench/gpu).
enum class ProductLibrary : std::uint8_t { kAten, kCublasLt };

/// For tests and benches. Errors  UserError: built without that library's headers.
void multiply_by(ProductLibrary library);

/// Selects the library that STRATA_CUDA_PRODUCTS names (aten, cublaslt), so that a run can be
/// measured with either; does nothing if it is not set. Returns whether it is set.
/// Errors  UserError: an unknown name, or see above.
bool multiply_as_environment_says();

/// Errors  UserError: the environment names a library that ATen's primitives do not use.
void refuse_product_library_with_aten();

}  // namespace strata
