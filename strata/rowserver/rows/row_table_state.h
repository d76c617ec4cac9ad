/// Converts a table of rows to records and back, for snapshots and digests.
///
/// Threads  as ShardState.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/rowserver/rows/row_table.h"
#include "strata/rowserver/rows/shard_state.h"

namespace strata {

std::unique_ptr<ShardState> make_row_table_state(const std::vector<FeatureSpec>& features,
                                                 const RowTableOptions& options);

}  // namespace strata
