/// Reads the features of tables from a file of YAML, or JSON, for servers that have no recipe:
///
///     {"features": [{"name": "user", "width": 16, "optimizer": {"kind": "adagrad", "learning_rate": 0.05}}]}
///
/// Errors  UserError that names file and field: unknown, missing, of another kind.
#pragma once

#include <string>
#include <vector>

#include "strata/rowserver/feature.h"

namespace strata {

std::vector<FeatureSpec> read_features(const std::string& path);

}  // namespace strata
