/// Computes the small operators of a host, vectorised for the machine that runs them (Highway).
///
/// Each kernel works on a piece of a tensor; callers cut pieces at multiples of 16 elements or at
/// rows, so that bits don't depend on the number of threads. No torch is included here: these files
/// compile fast.
///
/// Tensors of fp32, bf16 or fp16 are accessed in place; intermediate values, statistics and
/// gradients of weights are fp32, and each result is rounded once, to nearest even.
///
/// Shapes  R rows of C contiguous elements, row-major; offsets in elements.
#pragma once

#include <cstdint>

#include "strata/base/element.h"

namespace strata::kernels {

// ---- GELU, tanh form (Hendrycks & Gimpel 2016): x sigmoid(2 k (x + 0.044715 x^3)),
// k = sqrt(2/pi)

void gelu(Element element, const void* x, void* y, std::int64_t n);
/// From x and the gradient at y, writes the gradient at x (may be the same memory as dy), and y
/// again.
void gelu_backward(Element element, const void* x, const void* dy, void* dx, void* y,
                   std::int64_t n);
/// The same without y.
void gelu_backward(Element element, const void* x, const void* dy, void* dx, std::int64_t n);

// ---- SwiGLU (Shazeer 2020): silu(gate) * up, rows of [gate | up], `width` elements each

void swiglu(Element element, const void* gate_up, void* y, std::int64_t rows, std::int64_t width);
/// From the inputs and the gradient at y, writes the gradient at the inputs, and y again (may be
/// the same memory as dy).
void swiglu_backward(Element element, const void* gate_up, const void* dy, void* dgate_up, void* y,
                     std::int64_t rows, std::int64_t width);

// ---- ReLU

void relu(Element element, const void* x, void* y, std::int64_t n);
/// dx may be the same memory as dy.
void relu_backward(Element element, const void* x, const void* dy, void* dx, std::int64_t n);

// ---- LayerNorm (Ba et al. 2016)

/// y = (x - mean) * rstd * gain + bias for R rows; writes mean and rstd, [R] each.
void layer_norm(Element element, const void* x, const float* gain, const float* bias, void* y,
                float* mean, float* rstd, std::int64_t rows, std::int64_t columns, float epsilon);
/// y from the statistics of the forward: the same bits.
void layer_norm_again(Element element, const void* x, const float* gain, const float* bias,
                      const float* mean, const float* rstd, void* y, std::int64_t rows,
                      std::int64_t columns);
/// Writes the gradient at x (may be the same memory as dy).
void layer_norm_backward(Element element, const void* x, const void* dy, const float* gain,
                         const float* mean, const float* rstd, void* dx, std::int64_t rows,
                         std::int64_t columns);
/// Adds the gradients of gain and bias for the columns [begin, end) of all rows.
void layer_norm_weight_gradient(Element element, const void* x, const void* dy, const float* mean,
                                const float* rstd, float* dgain, float* dbias, std::int64_t rows,
                                std::int64_t columns, std::int64_t begin, std::int64_t end);

// ---- RMSNorm (Zhang & Sennrich 2019)

/// y = x * rstd * gain for R rows; writes rstd, [R].
void rms_norm(Element element, const void* x, const float* gain, void* y, float* rstd,
              std::int64_t rows, std::int64_t columns, float epsilon);
/// y from the statistics of the forward: the same bits.
void rms_norm_again(Element element, const void* x, const float* gain, const float* rstd, void* y,
                    std::int64_t rows, std::int64_t columns);
/// Writes the gradient at x (may be the same memory as dy).
void rms_norm_backward(Element element, const void* x, const void* dy, const float* gain,
                       const float* rstd, void* dx, std::int64_t rows, std::int64_t columns);
/// Adds the gradient of gain for the columns [begin, end) of all rows.
void rms_norm_weight_gradient(Element element, const void* x, const void* dy, const float* rstd,
                              float* dgain, std::int64_t rows, std::int64_t columns,
                              std::int64_t begin, std::int64_t end);

// ---- BatchNorm (Ioffe & Szegedy 2015), fp32, of the columns [begin, end)

/// Mean and biased variance over the rows, in their order.
void batch_statistics(const float* x, float* mean, float* variance, std::int64_t rows,
                      std::int64_t columns, std::int64_t begin, std::int64_t end);

/// Values per column, C each.
struct BatchNormColumns {
  const float *gain, *bias, *mean, *variance;
  float epsilon;
};
/// y = (x - mean) / sqrt(variance + epsilon) * gain + bias
void batch_norm(const float* x, const BatchNormColumns& norm, float* y, std::int64_t rows,
                std::int64_t columns, std::int64_t begin, std::int64_t end);
/// Adds the gradients of gain and bias; replaces dy by the gradient at x. Mean and variance are x's
/// own statistics.
void batch_norm_backward(const float* x, float* dy, const BatchNormColumns& norm, float* dgain,
                         float* dbias, std::int64_t rows, std::int64_t columns, std::int64_t begin,
                         std::int64_t end);

// ---- Interactions of features, fp32

/// One sample: V vectors of `width` elements; the first may be stored separately.
struct FeatureVectors {
  const float* first;  ///< null: all are in `rest`
  const float* rest;
  std::int64_t count, width;
};
/// No target's registers hold more numbers of fp32.
inline constexpr std::int64_t kMostLanes = 64;
/// Elements of a row of scratch memory for so many vectors.
inline constexpr std::int64_t padded_count(std::int64_t count) {
  return (count + kMostLanes - 1) / kMostLanes * kMostLanes;
}
/// Elements of scratch memory that the next two need.
std::size_t pairwise_scratch(const FeatureVectors& x);
/// products[k] = x_i . x_j for i = 1 ... V - 1, j = 0 ... i - 1
void pairwise_dots(const FeatureVectors& x, float* scratch, float* products);
/// Adds the gradient at the first vector to dfirst, if it is stored separately, and writes the
/// others to drest.
void pairwise_dots_backward(const FeatureVectors& x, const float* dproducts, float* scratch,
                            float* dfirst, float* drest);
/// y = a * b + c; c null: 0.
void multiply_add(Element element, const void* a, const void* b, const void* c, void* y,
                  std::int64_t n);

// ---- Rotary positions (Su et al. 2021), halves of a head turned against each other

/// In place: turns each of the `heads` heads of `width` elements from `x` on by one position's
/// angles, `cosines` and `sines` [width / 2]. `direction` -1: the inverse.
void rotate(Element element, void* x, const float* cosines, const float* sines, std::int64_t heads,
            std::int64_t width, float direction);

// ---- Sums and conversions

/// sum[c] += column sums of the columns [begin, end), rows added in ascending order.
void add_column_sums(Element element, const void* x, float* sum, std::int64_t rows,
                     std::int64_t columns, std::int64_t begin, std::int64_t end);
/// y = a + b; y may be the same memory as either.
void add(Element element, const void* a, const void* b, void* y, std::int64_t n);
/// sum += x
void add_to(Element element, const void* x, float* sum, std::int64_t n);
void widen(Element element, const void* x, float* y, std::int64_t n);
void narrow(Element element, const float* x, void* y, std::int64_t n);

// ---- Dropout, mask drawn by counter (strata/base/philox.h)

/// Names one mask: element e of sample s is kept if word e % 4 of
/// philox({e / 4, s, site, 0}, key) is at least `threshold` = p * 2^32.
struct DropoutMask {
  std::uint64_t key;
  std::uint32_t site;
  std::uint32_t threshold;
  float scale;  ///< 1 / (1 - p)
};

/// y = residual + mask * x for elements [begin, begin + n) of one sample; begin is a multiple of 4,
/// n is one except at a sample's end. `residual` null: y = mask * x (forward without residual;
/// backward).
void dropout_add(Element element, const void* residual, const void* x, void* y,
                 const DropoutMask& mask, std::uint32_t sample, std::int64_t begin, std::int64_t n);

// ---- Cross-entropy over rows of logits, in three steps: if ranks divide the classes, they add up
// the results of each step before the next. Smoothing as in PyTorch: (1 - smoothing) * loss at the
// target + smoothing * mean over all classes.

/// The columns of a row of logits: the classes [first, first + valid) of `classes`, then padding,
/// which belongs to no class.
struct LogitColumns {
  std::int64_t columns;
  std::int64_t valid;
  std::int64_t first;
  std::int64_t classes;
};

/// Targets are classes of any rank, or `ignored`.
struct CrossEntropy {
  LogitColumns at;
  std::int64_t ignored;
  float smoothing;
  float scale;  ///< factor on the gradient
};

/// Sums per row, R each; summed over all ranks before the next step reads them.
struct SoftmaxSums {
  float* exponentials;  ///< sum of exp(z - top)
  float* at_target;     ///< z[target]; 0 on the ranks that don't have it
  float* shifted;       ///< sum of z - top; not written without smoothing
};

/// top[r] = the largest logit; -infinity without a class.
void largest_logits(const float* logits, float* top, LogitColumns at, std::int64_t rows);
/// Computes the sums for `top`; with `keep` the exponentials replace the logits.
void softmax_sums(float* logits, const float* top, const std::int64_t* targets,
                  const CrossEntropy& what, SoftmaxSums sums, std::int64_t rows, bool keep);
/// Per row: loss[r] = log(sum(exp(z))) - z[target], smoothed; 0 if the target is ignored. `loss`
/// may be `top`.
void cross_entropy(const float* top, const std::int64_t* targets, const CrossEntropy& what,
                   SoftmaxSums sums, float* loss, std::int64_t rows);
/// Replaces exponentials by the gradient at the logits, times `scale`; 0 for padding.
void cross_entropy_gradient(float* exponentials, const std::int64_t* targets,
                            const CrossEntropy& what, SoftmaxSums sums, std::int64_t rows);

}  // namespace strata::kernels
