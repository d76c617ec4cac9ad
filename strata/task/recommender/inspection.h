/// Holds the inspection of a trained recommender, and writes it for people, programs and the
/// report: how well it predicts, what each feature contributes, and which ids are hot.
///
/// Importance  a feature's values are permuted among the validation samples, always in the same
///             way; the loss of quality is what the feature contributes beyond the others. Of two
///             features with the same information each seems to contribute little.
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
  /// For each of rows.ids(): its text in the log. "" if it is a number, or no sample has it; empty:
  /// all texts are "".
  std::vector<std::string> texts = {};
};

struct RecommenderInspection {
  std::int64_t steps = 0;  ///< number of steps done
  Evaluation evaluation;
  std::vector<FeatureImportance> importance;  ///< empty: not requested
  std::vector<HotTable> hot;                  ///< empty: not requested
};

/// The inspection as tables and JSON. `hot_ids_in_report_alone`: the request did not include hot
/// ids.
Inspection inspection_of(const RecommenderInspection& found, bool hot_ids_in_report_alone);

}  // namespace strata
