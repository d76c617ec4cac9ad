/// Reads the features of tables from a YAML or JSON file, for servers that have no recipe:
///
///     {"features": [{"name": "user", "width": 16,
///                    "optimizer": {"kind": "adagrad", "learning_rate": 0.05}}]}
///
/// Errors   UserError with file and field: an unknown or missing field, or a value of the wrong
///          kind.
#pragma once

#include <string>
#include <vector>

#include "strata/rowserver/feature.h"

namespace strata {

std::vector<FeatureSpec> read_features(const std::string& path);

}  // namespace strata
