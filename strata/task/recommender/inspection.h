/// Holds what a trained recommender shows, and writes it for people, programs and the report: how well it
/// predicts, how much of that each feature carries, and which ids are hot.
///
/// Importance  a feature's values are permuted among the validation samples, always the same way; what the
///             predictions lose is what the feature carries beyond the others. Of two features that tell
///             the same each seems to carry little.
/// Source      permutation importance: Breiman, "Random forests" (2001).
#pragma once

#include <string>
#include <vector>

#include "strata/rowserver/rows/hot_rows.h"
#include "strata/task/task_run.h"

namespace strata {

struct FeatureImportance {
  std::string feature;
  Evaluation permuted;
};

struct HotTable {
  std::string table;
  HotRows rows;
  /// Of rows.ids(), in their order: what the log says for the id. "" where it is a number, or no sample has it;
  /// empty: all are.
  std::vector<std::string> texts = {};
};

struct RecommenderInspection {
  std::int64_t steps = 0;  ///< done
  Evaluation evaluation;
  std::vector<FeatureImportance> importance;  ///< empty: nobody asked
  std::vector<HotTable> hot;                  ///< the same
};

/// Tables and JSON. `hot_ids_in_report_alone`: the request did not name hot ids.
Inspection inspection_of(const RecommenderInspection& found, bool hot_ids_in_report_alone);

}  // namespace strata
