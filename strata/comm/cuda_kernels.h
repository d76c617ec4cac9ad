/// Launches what collectives compute on a GPU: sums in the order of ranks.
///
/// Terms are pointers that the device can read, its own memory or a peer's. Bits are those of
/// ordered_sum.cpp: each element is added in the order of the terms, 16 bits in fp32, rounded once.
///
/// Cost     each term once, up to eight in a pass.
/// Threads  `stream` is the device's (a cudaStream_t); nothing waits for it.
#pragma once

#include <cstdint>
#include <span>

#include "strata/base/element.h"

namespace strata::cuda {

inline constexpr std::size_t kTermsInAPass = 8;

/// out = terms[0] + terms[1] + ...; out may be one of the first eight terms. More than eight 16-bit
/// terms need a `workspace` of n floats for the sum so far; else it may be null.
void sum_in_order(kernels::Element element, std::span<const void* const> terms, void* out,
                  std::int64_t n, float* workspace, void* stream);
/// The same in fp64.
void sum_in_order(std::span<const double* const> terms, double* out, std::int64_t n, void* stream);

}  // namespace strata::cuda
