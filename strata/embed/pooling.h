/// Pools the rows of a sample's ids into one vector, and computes the gradients of the rows from
/// the vector's gradient.
///
/// Shapes   pooled values [samples, width of the whole batch], of which each feature has some
///          columns; rows [distinct ids, row width]. A sample without ids pools to zeros.
/// Order    occurrences are added in the order of the samples, so sums do not depend on threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/tabular/options.h"
#include "strata/tabular/sample_batch.h"

namespace strata {

/// The ids of a batch that share a table, distinct and ascending.
struct DistinctIds {
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> row_of;  ///< index in `ids`, per occurrence
};

/// Distinct ids of several lists, whose occurrences are numbered consecutively.
DistinctIds distinct_ids(std::span<const IdLists* const> lists);

struct PooledFeature {
  Pooling pooling = Pooling::kSum;
  int row_width = 16;
  int length = 1;  ///< kSequence: number of rows
  int width() const { return pooling == Pooling::kSequence ? length * row_width : row_width; }
};

/// Writes columns [0, feature.width()) of `pooled`, whose rows are `stride` apart. `row_of`:
/// indices of the feature's occurrences.
void pool(const PooledFeature& feature, const IdLists& lists, std::span<const std::int32_t> row_of,
          const float* rows, float* pooled, std::int64_t stride);

/// Adds the gradients of the rows, given `gradients` in the layout of `pooled`.
void add_row_gradients(const PooledFeature& feature, const IdLists& lists,
                       std::span<const std::int32_t> row_of, const float* rows,
                       const float* gradients, std::int64_t stride, float* row_gradients);

}  // namespace strata
