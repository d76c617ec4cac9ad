/// Numbers the blocks of a layer whose sums of squares make the norm of each weight with decay.
///
/// A block is the part of a flat block (kFlatBlock) that one weight covers, so that no cut of the
/// layer between ranks divides a block. Blocks are numbered in the order of their elements: those
/// of a shard follow each other.
///
/// Units  elements of the layer.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/base/flat_range.h"
#include "strata/nn/graph/layout.h"

namespace strata {

class WeightBlocks {
 public:
  struct Weight {
    std::size_t index = 0;  ///< in the layout
    FlatRange elements;
    FlatRange blocks;      ///< their numbers
    bool divided = false;  ///< the elements are one tensor-parallel rank's slice of it

    /// The elements that a range of the layer has of it; may be empty.
    FlatRange part_in(FlatRange range) const;
  };

  WeightBlocks() = default;
  explicit WeightBlocks(const LayerLayout& layout);

  const std::vector<Weight>& weights() const { return weights_; }  ///< in ascending order
  std::int64_t size() const { return weights_.empty() ? 0 : weights_.back().blocks.end; }

  /// The numbers of the blocks in a range that begins and ends at a multiple of kFlatBlock, or
  /// after the last weight.
  FlatRange in(FlatRange range) const { return {before(range.begin), before(range.end)}; }

 private:
  std::int64_t before(std::int64_t element) const;

  std::vector<Weight> weights_;
};

}  // namespace strata
