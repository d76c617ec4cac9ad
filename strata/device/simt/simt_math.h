/// Defines mathematical functions with the same bits on both machines (simt.h).
#pragma once

#include "strata/device/simt/simt.h"

namespace strata::simt {

/// Returns e^x within 1.2 ulp for x up to 88.37, half a power of two before fp32 overflows; 0 below
/// -87.3, where results become denormal. Not the machines' libraries, because their bits differ.
/// Few instructions, because kernels with one exponential per 2 bytes of input are bound by them.
/// Source  x = (n + f) ln 2, |f| <= 1/2; the polynomial for 2^f has the smallest maximal error of
///         its degree.
STRATA_DEVICE float exp(float x) {
  constexpr float kLog2eHigh = 1.44269502f, kLog2eLow = 1.92596303e-8f;
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: rounds to whole numbers
  const float shifted = fma(x, kLog2eHigh, kShift), n = shifted - kShift;
  const float f = fma(x, kLog2eLow, fma(x, kLog2eHigh, -n));
  float p = 1.53533622e-4f;
  p = fma(p, f, 1.33988751e-3f);
  p = fma(p, f, 9.61843692e-3f);
  p = fma(p, f, 5.55033237e-2f);
  p = fma(p, f, 2.40226477e-1f);
  p = fma(p, f, 6.93147182e-1f);
  p = fma(p, f, 1.0f);
  const float power = bits_as<float>((bits_as<std::uint32_t>(shifted) << 23) + 0x3F800000u);
  return x < -87.3f ? 0.0f : p * power;  // a NaN stays one
}

}  // namespace strata::simt
