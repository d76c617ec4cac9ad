/// Multiplies fp32 matrices by the system's oneDNN (libdnnl 2 or 3), if it is there.
///
/// MKL, which libtorch multiplies fp32 with, uses AVX-512 on Intel's processors alone. On others
/// oneDNN's generated kernels are 2.2 times as fast (AMD Zen 5: 225 against 100 GFLOP/s a core); with
/// AVX2 the two are equal. host_primitives.h says who multiplies.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

bool has_onednn();  ///< false in sanitizer builds, too

/// c = a b + beta c on the calling thread; a [m, k], b [k, n], c [m, n] whose rows have neighbours.
/// InternalError: other shapes. std::bad_alloc: no memory for what oneDNN packs and generates.
void onednn_sgemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, float beta);

}  // namespace strata
