/// Computes the small operators of Llama-like models on a host; the rules of kernels.h hold.
///
/// Shapes  R rows of C contiguous fp32 elements, row-major.
#pragma once

#include <cstdint>

namespace strata::kernels {

// ---- RMSNorm (Zhang & Sennrich 2019)

/// y = x * rstd * gain for R rows; writes rstd, [R].
void rms_norm(const float* x, const float* gain, float* y, float* rstd, std::int64_t rows,
              std::int64_t columns, float epsilon);
/// y from the statistics of the forward: the same bits.
void rms_norm_again(const float* x, const float* gain, const float* rstd, float* y,
                    std::int64_t rows, std::int64_t columns);
/// Gradient at x (may be the same memory as dy).
void rms_norm_backward(const float* x, const float* dy, const float* gain, const float* rstd,
                       float* dx, std::int64_t rows, std::int64_t columns);
/// Adds the gradient of gain for the columns [begin, end) of all rows.
void rms_norm_weight_gradient(const float* x, const float* dy, const float* rstd, float* dgain,
                              std::int64_t rows, std::int64_t columns, std::int64_t begin,
                              std::int64_t end);

// ---- SwiGLU (Shazeer 2020): silu(gate) * up, rows of [gate | up], `width` elements each

void swiglu(const float* gate_up, float* y, std::int64_t rows, std::int64_t width);
/// From the inputs and the gradient at y: gradient at the inputs, and y again (may be the same
/// memory as dy).
void swiglu_backward(const float* gate_up, const float* dy, float* dgate_up, float* y,
                     std::int64_t rows, std::int64_t width);

// ---- Rotary positions (Su et al. 2021), halves of a head turned against each other

/// In place: each of the `heads` heads of `width` elements from `x` on, by one position's angles,
/// `cosines` and `sines` [width / 2]. `direction` -1: back.
void rotate(float* x, const float* cosines, const float* sines, std::int64_t heads,
            std::int64_t width, float direction);

}  // namespace strata::kernels
