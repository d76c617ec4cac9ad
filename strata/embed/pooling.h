/// Makes one vector of the rows of a sample's ids, and the gradients of the rows of the vector's.
///
/// Shapes   pooled values [samples, width of the whole batch], of which a feature has some columns; rows
///          [distinct ids, row width]. A sample without ids pools to zeros.
/// Order    occurrences are added in the order of the samples, so that the sums don't depend on threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/tabular/options.h"
#include "strata/tabular/sample_batch.h"

namespace strata {

/// The ids of a batch that share a table, each once, ascending.
struct DistinctIds {
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> row_of;  ///< per occurrence: its place in `ids`
};

/// Of several lists, one behind the other.
DistinctIds distinct_ids(std::span<const IdLists* const> lists);

struct PooledFeature {
  Pooling pooling = Pooling::kSum;
  int row_width = 16;
  int length = 1;  ///< kSequence: rows
  int width() const { return pooling == Pooling::kSequence ? length * row_width : row_width; }
};

/// Columns [0, feature.width()) of `pooled`, whose lines are `stride` apart. `row_of`: of the feature's
/// occurrences.
void pool(const PooledFeature& feature, const IdLists& lists, std::span<const std::int32_t> row_of,
          const float* rows, float* pooled, std::int64_t stride);

/// Adds what `gradients` (as `pooled` above) mean for each row.
void add_row_gradients(const PooledFeature& feature, const IdLists& lists,
                       std::span<const std::int32_t> row_of, const float* rows,
                       const float* gradients, std::int64_t stride, float* row_gradients);

}  // namespace strata
