/// Finds a tensor-parallel rank's slice of a weight: its shape and where its elements lie in the
/// whole.
///
/// Every rank's slice has the same shape: sizes that don't divide are rounded up, and the last
/// slices end in padding, which belongs to no run and stays zero.
///
/// Units  offsets and lengths in elements, row-major.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/nn/layer.h"

namespace strata {

/// Elements that are contiguous both in the slice and in the whole weight.
struct Run {
  std::int64_t local = 0;
  std::int64_t global = 0;
  std::int64_t numel = 0;
  friend bool operator==(const Run&, const Run&) = default;
};

std::vector<std::int64_t> slice_shape(const WeightSpec& spec, int ranks);

/// Ascending in `local`; adjacent runs are joined. One run for a weight that isn't split.
std::vector<Run> slice_runs(const WeightSpec& spec, int rank, int ranks);

/// The parts of `runs` inside [begin, end) of the slice's elements.
std::vector<Run> clip_runs(const std::vector<Run>& runs, std::int64_t begin, std::int64_t end);

}  // namespace strata
