/// Computes the global gradient norm with the same bits on any mesh.
///
/// Sums squares in fp64 over blocks of 1,024 elements and adds blocks in order within a layer; the
/// caller adds the layers' sums in layer order. A sum per rank would depend on the cut.
///
/// Shapes  gradients: flat fp32; only the rank's own range counts (a tied weight once, at its
///         owner).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/base/flat_range.h"

namespace at {
class Tensor;  // no torch here: block_squares.cpp is compiled once per instruction set
}

namespace strata {

/// Writes to sums[b], in fp64, the squares of block b of x (kFlatBlock); the last block ends at n.
/// The bits are the same for every instruction set.
void block_squares(const float* x, double* sums, std::int64_t n);

double sum_of_squares(const at::Tensor& gradients);

/// The layer's sums of squares by block, for elements that lie in `part` and in `counted`; zero
/// elsewhere, so that ranks with different parts can add theirs. `gradients` holds the elements of
/// `part` of a layer of `numel`; `counted`: ascending ranges of the layer.
std::vector<double> block_sums(const at::Tensor& gradients, FlatRange part,
                               std::span<const FlatRange> counted, std::int64_t numel);

/// The same, written to `sums`, one per block of the layer.
void block_sums(const at::Tensor& gradients, FlatRange part, std::span<const FlatRange> counted,
                std::span<double> sums);

/// Adds in ascending order.
double ordered_sum(std::span<const double> values);

/// Factor that reduces `norm` to `clip`; 1 if the norm is smaller or clip is 0 (off).
constexpr double clip_factor(double norm, double clip) {
  return clip > 0 && norm > clip ? clip / norm : 1.0;
}

}  // namespace strata
