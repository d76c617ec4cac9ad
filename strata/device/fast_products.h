/// Reports which products the host's processor computes fast.
///
/// Some processors have instructions for products of 16-bit numbers: AMX, and AVX-512 BF16 where
/// its rate is twice fp32's (AMD since Zen 4). Intel's cores issue the latter at half of fp32's
/// rate (measured: 80 against 170 GFLOP/s per core of a Sapphire Rapids), and others lack them: on
/// those a product is faster if its operands are widened to fp32. The answer depends only on the
/// processor, never on a measurement, because bits depend on it.
#pragma once

#include <c10/core/ScalarType.h>

namespace strata {

/// Whether products of this type run faster in their own instructions than in fp32.
bool has_fast_products(c10::ScalarType dtype);

/// Whether the processor has AVX-512 but MKL, which checks for Intel, multiplies fp32 with AVX2.
bool mkl_leaves_avx512();

}  // namespace strata
