/// Describes a server and its models in the JSON of the protocol.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strata/kserve/model/model_repository.h"

namespace strata {

nlohmann::ordered_json server_json(const std::string& version);
nlohmann::ordered_json model_json(const ModelDescription& model);   ///< GET /v2/models/NAME
nlohmann::ordered_json config_json(const ModelDescription& model);  ///< Triton's .../config
nlohmann::ordered_json statistics_json(const std::vector<ModelRepository::Model>& models);
nlohmann::ordered_json index_json(const std::vector<IndexEntry>& index);

}  // namespace strata
