/// Computes the global gradient norm exactly alike on any mesh.
///
/// fp64 sums of squares over blocks of 1,024 elements, added in block order within a layer; the
/// layers' sums are added in layer order by the caller. Never one scalar a rank: that would depend
/// on the cut.
///
/// Shapes  gradients: flat fp32; only the own range counts (a tied weight once, at its owner).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/base/flat_range.h"

namespace at {
class Tensor;  // no torch in here: block_squares.cpp compiles once for each instruction set
}

namespace strata {

/// Writes sums[b], in fp64, of the squares of block b of x (kFlatBlock), the last block cut at n; the
/// same bits on every instruction set.
void block_squares(const float* x, double* sums, std::int64_t n);

double sum_of_squares(const at::Tensor& gradients);

/// The layer's sums of squares block by block, as far as they lie in `part` and are counted; zero
/// elsewhere, so that ranks with different parts can add theirs. `gradients` holds the elements of
/// `part` of a layer of `numel`; `counted`: ascending ranges of the layer.
std::vector<double> block_sums(const at::Tensor& gradients, FlatRange part,
                               std::span<const FlatRange> counted, std::int64_t numel);

/// The same, written to `sums`, as many as the layer has blocks.
void block_sums(const at::Tensor& gradients, FlatRange part, std::span<const FlatRange> counted,
                std::span<double> sums);

/// In ascending order.
double ordered_sum(std::span<const double> values);

/// Factor that brings `norm` down to `clip`; 1 when it is below or clip is 0 (off).
constexpr double clip_factor(double norm, double clip) {
  return clip > 0 && norm > clip ? clip / norm : 1.0;
}

}  // namespace strata
