/// Launches the small operators of a GPU: kernels.h for device memory, enqueued on a stream.
///
/// The sources NAME.cu run on two machines (strata/device/simt/simt.h). Elementwise kernels have
/// the bits of the host's kernels; differing orders of sums and exponentials are stated here, and
/// cuda_*_simt_test.cpp check them. No atomics: the same bits in every run, for any number of
/// multiprocessors.
///
/// Shapes   R rows of C contiguous elements, row-major. Pointers aligned to 16 bytes and C a
///          multiple of 8 are fast (16-byte accesses); all others are correct.
/// Cost     stated as bytes moved per element unless each argument moves once.
/// Threads  `stream` is the device's (a cudaStream_t); no call waits for it. `scalars`, in device
///          memory, holds the step's numbers that a recorded graph would freeze; null: only the
///          arguments count.
/// Errors   InternalError: the device refused a launch.
#pragma once

#include <cstdint>

#include "strata/nn/kernels/kernels.h"

namespace strata {
struct StepScalars;
}

namespace strata::cuda {

using kernels::Element;

// ---- Activations. e^x is strata::simt::exp: within 4 ulp (fp32) of the host's results.

void gelu(Element element, const void* x, void* y, std::int64_t n, void* stream);
/// Writes the gradient at x (may be the same memory as dy) and, unless it is null, y again.
void gelu_backward(Element element, const void* x, const void* dy, void* dx, void* y,
                   std::int64_t n, void* stream);
void swiglu(Element element, const void* gate_up, void* y, std::int64_t rows, std::int64_t width,
            void* stream);
/// Writes the gradient at the inputs, and y again (may be the same memory as dy).
void swiglu_backward(Element element, const void* gate_up, const void* dy, void* dgate_up, void* y,
                     std::int64_t rows, std::int64_t width, void* stream);
void relu(Element element, const void* x, void* y, std::int64_t n, void* stream);
/// dx may be the same memory as dy.
void relu_backward(Element element, const void* x, const void* dy, void* dx, std::int64_t n,
                   void* stream);

// ---- Sums and products: the host's bits

/// y = a + b; y may be the same memory as either.
void add(Element element, const void* a, const void* b, void* y, std::int64_t n, void* stream);
/// x [R, C] += table [length, C], row r by row r % length: a bias (length 1) or positions.
void add_repeated(Element element, void* x, const void* table, std::int64_t rows,
                  std::int64_t length, std::int64_t columns, void* stream);
/// y = a * b + c, rounded once; c null: 0.
void multiply_add(Element element, const void* a, const void* b, const void* c, void* y,
                  std::int64_t n, void* stream);

// ---- Dropout: the host's bits

/// The mask of a micro-batch. With scalars the key is mixed with their step, otherwise it is
/// complete. The first sample counts in the mini-batch in both cases: a recorded step's
/// micro-batches keep their positions.
struct SampleMask {
  kernels::DropoutMask mask;
  std::int64_t first_sample;
  std::int64_t first_element;  ///< of each sample: elements on the ranks before; a multiple of 4
};
/// y = residual + mask * x; residual null: mask * x. x [samples, per_sample].
void dropout_add(Element element, const void* residual, const void* x, void* y,
                 const SampleMask& mask, std::int64_t samples, std::int64_t per_sample,
                 const StepScalars* scalars, void* stream);

// ---- Norms

/// Weights in the type of x, [C].
struct NormWeights {
  const void* gain;
  const void* bias;  ///< null: RMSNorm, which has no mean either
};
/// y = norm(x); writes mean and rstd, [R] each. Sums in the order of a block's tree: statistics are
/// within 4 ulp of fp64.
void norm(Element element, const void* x, NormWeights weights, void* y, float* mean, float* rstd,
          std::int64_t rows, std::int64_t columns, float epsilon, void* stream);
/// y from the statistics: the bits of the forward, and the host's if its statistics are the same.
void norm_again(Element element, const void* x, NormWeights weights, const float* mean,
                const float* rstd, void* y, std::int64_t rows, std::int64_t columns, void* stream);
/// Gradient at x (may be the same memory as dy).
void norm_backward(Element element, const void* x, const void* dy, NormWeights weights,
                   const float* mean, const float* rstd, void* dx, std::int64_t rows,
                   std::int64_t columns, void* stream);

// ---- Sums of columns: each tile of kColumnTile rows is summed separately, then the tiles are
// added in ascending order. In a tile warp w adds rows w, w + 8, ...; a tree adds the warps' sums.
// The order never depends on the size of the grid.

inline constexpr std::int64_t kColumnTile = 128;  // rows
/// Floats that the functions below need as `workspace`.
std::int64_t column_workspace(std::int64_t rows, std::int64_t columns);

/// sum += column sums of x
void add_column_sums(Element element, const void* x, float* sum, std::int64_t rows,
                     std::int64_t columns, float* workspace, void* stream);
/// Adds the gradients of gain and bias; mean and dbias null: RMSNorm.
void norm_weight_gradient(Element element, const void* x, const void* dy, const float* mean,
                          const float* rstd, float* dgain, float* dbias, std::int64_t rows,
                          std::int64_t columns, float* workspace, void* stream);

// ---- BatchNorm, fp32

void batch_statistics(const float* x, float* mean, float* variance, std::int64_t rows,
                      std::int64_t columns, float* workspace, void* stream);
/// Has the host's bits if its statistics are the same.
void batch_norm(const float* x, const kernels::BatchNormColumns& norm, float* y, std::int64_t rows,
                std::int64_t columns, void* stream);
void batch_norm_backward(const float* x, float* dy, const kernels::BatchNormColumns& norm,
                         float* dgain, float* dbias, std::int64_t rows, std::int64_t columns,
                         float* workspace, void* stream);

// ---- Rotary positions: the host's bits

/// Layout of q or k: [samples, length, heads, width], the heads of a token are contiguous.
struct HeadRows {
  std::int64_t samples, length, heads, width;
  std::int64_t sample_stride, token_stride;  ///< elements
};
/// In place; table [length, width]: cosines, then sines. `direction` -1: the inverse.
void rotate(Element element, void* x, const HeadRows& at, const float* table, float direction,
            void* stream);

// ---- Interactions of features, fp32: first [samples, width] or null, rest [samples, n width]

struct FeatureBatch {
  const float* first;
  const float* rest;
  std::int64_t samples;
  std::int64_t count;  ///< vectors per sample, including the first
  std::int64_t width;
};
/// y = [first | x_i . x_j for j < i]; a warp's tree sums each product.
void pairwise_dots(const FeatureBatch& x, float* y, void* stream);
/// Writes dfirst (null if there is none) and drest: the host's bits.
void pairwise_dots_backward(const FeatureBatch& x, const float* dy, float* dfirst, float* drest,
                            void* stream);

// ---- Embeddings: the host's bits. The rank has the rows [first, first + count); other rows count
// as zero.

void gather_rows(Element element, const std::int64_t* tokens, const void* weight, void* y,
                 std::int64_t positions, std::int64_t width, std::int64_t first, std::int64_t count,
                 void* stream);
/// Sorts positions by their token's row, equal rows by position: rows[i] is the row of position
/// order[i], `count` for tokens without a row on this rank. Once per micro-batch, by CUB's radix
/// sort.
std::int64_t sort_workspace(std::int64_t positions);  ///< bytes
void sort_tokens(const std::int64_t* tokens, std::int64_t positions, std::int64_t first,
                 std::int64_t count, std::int32_t* rows, std::int32_t* order, void* workspace,
                 void* stream);
/// sum of each token's row += dy, in ascending position. A warp adds the positions of a row in
/// order.
void add_rows(Element element, const std::int32_t* rows, const std::int32_t* order, const void* dy,
              float* sum, std::int64_t positions, std::int64_t width, std::int64_t count,
              void* stream);
/// sum [length, C] += dy [samples, length, C], samples ascending.
void add_position_gradients(Element element, const void* dy, float* sum, std::int64_t samples,
                            std::int64_t length, std::int64_t columns, void* stream);

// ---- Cross-entropy over rows of logits. A single rank calls cross_entropy_alone; ranks that
// divide the classes call the four functions before it and exchange their maxima and sums in
// between. Both ways have the same bits for a group of one. With scalars the gradient's scale is
// loss_scale / valid tokens.

/// top[r] = largest logit of this rank (-infinity without a class), and the sums relative to it; 0
/// if the target is ignored. One pass: a sum is rescaled when its maximum grows.
void softmax_sums(Element element, const void* logits, const std::int64_t* targets,
                  const kernels::CrossEntropy& what, float* top, kernels::SoftmaxSums sums,
                  std::int64_t rows, void* stream);
/// Rescales sums from `own_top` to `top`, the largest logit of all ranks.
void rescale_sums(const float* own_top, const float* top, const kernels::CrossEntropy& what,
                  kernels::SoftmaxSums sums, std::int64_t rows, void* stream);
/// losses[r], fp64: 0 if the target is ignored.
void cross_entropy(const float* top, const std::int64_t* targets, const kernels::CrossEntropy& what,
                   kernels::SoftmaxSums sums, double* losses, std::int64_t rows, void* stream);
/// Replaces logits by their gradient; 0 for padding and ignored rows.
void cross_entropy_gradient(Element element, void* logits, const float* top,
                            const std::int64_t* targets, const kernels::CrossEntropy& what,
                            kernels::SoftmaxSums sums, std::int64_t rows,
                            const StepScalars* scalars, void* stream);
/// Computes all steps, one block per row; without `gradient` only the losses. Reads the logits
/// twice, the second time from the cache.
void cross_entropy_alone(Element element, void* logits, const std::int64_t* targets,
                         const kernels::CrossEntropy& what, double* losses, std::int64_t rows,
                         bool gradient, const StepScalars* scalars, void* stream);

/// losses[i] = binary cross-entropy in fp64, 0 if the label is below 0; `gradient`, unless null,
/// gets `scale` times the gradient at the logits. With scalars `scale` is theirs.
void logistic_loss(const float* logits, const float* labels, double* losses, double scale,
                   float* gradient, std::int64_t n, const StepScalars* scalars, void* stream);
/// *sum += values, in a fixed order: thread t of 1,024 adds values t, t + 1,024, ...; then a tree.
void add_sum(const double* values, double* sum, std::int64_t n, void* stream);

}  // namespace strata::cuda
