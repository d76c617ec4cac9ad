/// Converts samples that a program holds by column, such as those of a request, as SampleReader
/// converts those of a file.
///
/// Threads  any.
/// Errors   UserError with the sample and the column: what Preprocessing refuses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/tabular/preprocessing.h"

namespace strata {

struct FeatureColumn {
  std::string name;
  bool has_numbers = false;  ///< no categorical feature reads it, so its values are numbers
};

/// The columns that features read, each once: those of data.numeric, then of data.categorical.
std::vector<FeatureColumn> feature_columns(const TabularOptions& options);

/// The values of one column.
struct ColumnValues {
  std::vector<double> numbers;          ///< NaN: missing
  std::vector<std::string_view> texts;  ///< of a column without numbers: as in a log
};

/// `columns`: as feature_columns(), each with a value for every sample. The result has no labels.
SampleBatch read_columns(const Preprocessing& preprocessing, std::int64_t samples,
                         std::span<const ColumnValues> columns);

}  // namespace strata
