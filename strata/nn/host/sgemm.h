/// Multiplies fp32 matrices by the system's oneDNN (libdnnl 2 or 3), if it is installed.
///
/// MKL, libtorch's library for fp32, uses AVX-512 only on Intel's processors. On others oneDNN's
/// generated kernels are 2.2 times as fast (AMD Zen 5: 225 against 100 GFLOP/s per core); with AVX2
/// the two are equal. host_primitives.h states which one multiplies.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

bool has_onednn();  ///< also false in sanitizer builds

/// c = a b + beta c on the calling thread; a [m, k], b [k, n], c [m, n] with contiguous rows.
/// Throws InternalError for other shapes, std::bad_alloc if oneDNN has no memory to pack operands
/// or generate kernels.
void onednn_sgemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, float beta);

/// The same in the order of sums of kernels::multiply_few(), from 16 rows on: one product for each
/// of its pieces. Alone, oneDNN for AVX-512 cuts a sum elsewhere, and at other places if there are
/// fewer than 256 rows.
/// Cost    up to 4 % longer than one product (AMD, AVX-512).
void onednn_sgemm_in_pieces(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                            float beta);

}  // namespace strata
