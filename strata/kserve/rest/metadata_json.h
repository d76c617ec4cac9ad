/// Describes a server and its models in the JSON of the protocol.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strata/kserve/model/model_repository.h"

namespace strata {

/// Extensions of the protocol that the server has, by Triton's names.
const std::vector<std::string>& kserve_extensions();

nlohmann::ordered_json server_json(const std::string& version);
nlohmann::ordered_json model_json(const ModelDescription& model);   ///< GET /v2/models/NAME
nlohmann::ordered_json config_json(const ModelDescription& model);  ///< Triton's .../config
nlohmann::ordered_json statistics_json(const std::vector<ModelRepository::Model>& models);
/// `only_ready`: leaves out models that are not ready.
nlohmann::ordered_json index_json(const std::vector<ModelRepository::Model>& models,
                                  bool only_ready);

/// Triton's name of a datatype in configurations: "TYPE_STRING" for BYTES.
std::string config_type(Datatype datatype);

}  // namespace strata
