/// Names the folders and files of checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace strata {

inline constexpr const char* kManifestName = "manifest.json";

std::string checkpoint_folder_name(std::int64_t step);  ///< "step-00000400"
std::string unfinished(const std::string& folder);      ///< FOLDER + ".partial"

/// The step of "step-00000400"; empty for any other name.
std::optional<std::int64_t> step_of_folder_name(const std::string& name);
bool is_unfinished(const std::string& name);  ///< "step-00000400.partial"

/// "model.safetensors" or "model-00001-of-00002.safetensors"; shards count from 0.
std::string shard_name(const std::string& kind, int shard, int num_shards);

}  // namespace strata
