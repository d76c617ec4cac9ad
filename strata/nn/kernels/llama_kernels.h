/// Computes the small operators of Llama-like models on a host; the rules of kernels.h hold.
///
/// Shapes  R rows of C contiguous elements, row-major.
#pragma once

#include <cstdint>

#include "strata/nn/kernels/element.h"

namespace strata::kernels {

// ---- RMSNorm (Zhang & Sennrich 2019)

/// y = x * rstd * gain for R rows; writes rstd, [R].
void rms_norm(Element element, const void* x, const float* gain, void* y, float* rstd,
              std::int64_t rows, std::int64_t columns, float epsilon);
/// y from the statistics of the forward: the same bits.
void rms_norm_again(Element element, const void* x, const float* gain, const float* rstd, void* y,
                    std::int64_t rows, std::int64_t columns);
/// Gradient at x (may be the same memory as dy).
void rms_norm_backward(Element element, const void* x, const void* dy, const float* gain,
                       const float* rstd, void* dx, std::int64_t rows, std::int64_t columns);
/// Adds the gradient of gain for the columns [begin, end) of all rows.
void rms_norm_weight_gradient(Element element, const void* x, const void* dy, const float* rstd,
                              float* dgain, std::int64_t rows, std::int64_t columns,
                              std::int64_t begin, std::int64_t end);

// ---- SwiGLU (Shazeer 2020): silu(gate) * up, rows of [gate | up], `width` elements each

void swiglu(Element element, const void* gate_up, void* y, std::int64_t rows, std::int64_t width);
/// From the inputs and the gradient at y: gradient at the inputs, and y again (may be the same
/// memory as dy).
void swiglu_backward(Element element, const void* gate_up, const void* dy, void* dgate_up, void* y,
                     std::int64_t rows, std::int64_t width);

// ---- Rotary positions (Su et al. 2021), halves of a head turned against each other

/// In place: each of the `heads` heads of `width` elements from `x` on, by one position's angles,
/// `cosines` and `sines` [width / 2]. `direction` -1: back.
void rotate(Element element, void* x, const float* cosines, const float* sines, std::int64_t heads,
            std::int64_t width, float direction);

}  // namespace strata::kernels
