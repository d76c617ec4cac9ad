/// Places the weights of one layer, or a tensor-parallel rank's slices of them, in its flat buffer,
/// and locates such a slice in the whole weight.
///
/// Every rank's slice has the same shape: sizes that don't divide are rounded up, and the last
/// slices end in padding, which no run covers and which stays zero.
///
/// Order: weights with decay, weights without, running statistics, then (in the gradient buffer
/// only, or in a replica) uses of weights that another layer owns. Each starts at a multiple of 64
/// bytes (256 on a GPU, whose libraries choose algorithms by alignment), in the buffer of the
/// weights' own type and in those of fp32. Padding is zero, so one optimizer pass covers a range
/// and its bits don't depend on how it is cut.
///
/// Units  offsets and lengths in elements, row-major.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/base/flat_range.h"
#include "strata/nn/graph/layer.h"

namespace strata {

inline constexpr std::int64_t kWeightAlignmentBytes = 64;
inline constexpr std::int64_t kCudaWeightAlignmentBytes = 256;

struct WeightPlacement {
  std::vector<std::int64_t> shape;  ///< of this rank's slice
  std::int64_t offset = 0;
  std::int64_t numel = 0;
  bool borrowed = false;  ///< a tied weight that another layer owns
};

struct LayerLayout {
  std::vector<WeightSpec> specs;
  std::vector<WeightPlacement> placements;  ///< as specs
  std::int64_t decay_numel = 0;             ///< [0, decay_numel): weight decay applies
  std::int64_t trained_numel = 0;  ///< [0, trained_numel): the optimizer's range; statistics follow
  std::int64_t own_numel = 0;      ///< [0, own_numel): this layer's weights
  std::int64_t total_numel = 0;    ///< with the borrowed uses; size of the gradient buffer
};

/// `borrowed[i]`: specs[i] is tied and owned by another layer. `ranks`: the number of ranks that
/// divide split weights; all have the same layout. `dtype`: of the weights.
LayerLayout make_layout(std::vector<WeightSpec> specs, const std::vector<bool>& borrowed,
                        int ranks = 1, at::ScalarType dtype = at::kFloat,
                        std::int64_t alignment_bytes = kWeightAlignmentBytes);

/// The layer's own trained weights of at least two dimensions, ascending. Others, such as biases
/// and the gains of norms, have few elements.
std::vector<FlatRange> matrices_of(const LayerLayout& layout);

/// Elements that are contiguous both in the slice and in the whole weight.
struct Run {
  std::int64_t local = 0;
  std::int64_t global = 0;
  std::int64_t numel = 0;
  friend bool operator==(const Run&, const Run&) = default;
};

std::vector<std::int64_t> slice_shape(const WeightSpec& spec, int ranks);

/// Runs in ascending `local`; adjacent runs are joined. One run for a weight that isn't split.
std::vector<Run> slice_runs(const WeightSpec& spec, int rank, int ranks);

/// The parts of `runs` inside [begin, end) of the slice's elements.
std::vector<Run> clip_runs(const std::vector<Run>& runs, std::int64_t begin, std::int64_t end);

}  // namespace strata
