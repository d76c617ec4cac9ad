/// Measures what a server of one model reaches on each mesh of this machine, in each precision and
/// with weights of 8 and 4 bits, for several numbers of answers at once.
///
/// Each setting has its own server, with the model's weights and ranks that are threads; no client
/// is on a network.
///
/// Cost    a load of the weights for each setting, and the load's time for each number of answers.
/// Errors  UserError: no setting can be measured. A setting that the model, the machine or the
///         budgets refuse while others can be measured is part of the result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/batching/service_load.h"
#include "strata/cli/serving_arguments.h"

namespace strata {

struct MeasureRequest {
  std::string checkpoint;
  std::vector<std::string> overrides;  ///< a field of the mesh, or the precision, stays as they say
  std::vector<WeightType> weights;     ///< types to measure
  ServingArguments serving;
  /// Without `clients`; 0 tokens: what the context has room for, at most 128, 64.
  ServiceLoad load;
  std::function<void(const std::string&)> report;  ///< called with a line for each row
};

struct MeasuredRow {
  std::int64_t at_once = 0;  ///< answers
  ServiceRates rates;
};

struct MeasuredSetting {
  std::string name;                    ///< "tp 2, int8"
  std::vector<std::string> overrides;  ///< those that the setting adds: "mesh.tp=2"
  WeightType weights = WeightType::kPrecision;
  std::int64_t peak_bytes = 0;  ///< planned, of the fullest rank
  std::vector<MeasuredRow> rows;
  std::string refusal;  ///< why it was not measured; else empty
};

struct Measurement {
  ServiceLoad load;  ///< as measured
  std::vector<MeasuredSetting> settings;
};

Measurement measure_settings(const MeasureRequest& request);

/// The row with the most, or with `least` the least, of a number; null: nothing was measured.
struct FoundRow {
  const MeasuredSetting* setting = nullptr;
  const MeasuredRow* row = nullptr;
};
FoundRow best_row(const Measurement& measurement, double (*number)(const ServiceRates&),
                  bool least = false);

}  // namespace strata
