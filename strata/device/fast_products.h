/// Says what the host's processor is fast in.
///
/// Products of 16-bit numbers have instructions of their own on some processors: AMX, and AVX-512
/// BF16 where its rate is twice fp32's (AMD since Zen 4). Intel's cores issue the latter at half of
/// fp32's rate (measured: 80 against 170 GFLOP/s a core of a Sapphire Rapids), others don't have
/// them: there a product is faster when its operands are widened to fp32. The answer depends on
/// the processor alone, never on a measurement: bits depend on it.
#pragma once

#include <c10/core/ScalarType.h>

namespace strata {

/// Whether products of this type run faster in its own instructions than in fp32.
bool has_fast_products(c10::ScalarType dtype);

/// Whether the processor has AVX-512 and MKL, which asks for Intel's processors, multiplies fp32 by AVX2.
bool mkl_leaves_avx512();

}  // namespace strata
