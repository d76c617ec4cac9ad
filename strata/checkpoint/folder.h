/// Names the folders and files of checkpoints, and lists, removes and locks them.
///
/// A checkpoint is complete as soon as it has its name: FOLDER/step-00000400. It is written as
/// step-00000400.partial; unfinished ones are ignored, and removed by the next save.
///
/// Errors  UserError from CheckpointLock: another run saves to the folder, or it cannot be made.
///         SystemError: a folder that cannot be renamed or removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/folder_lock.h"

namespace strata {

inline constexpr const char* kManifestName = "manifest.json";

std::string checkpoint_folder_name(std::int64_t step);  ///< "step-00000400"
std::string unfinished(const std::string& folder);      ///< FOLDER + ".partial"

/// The step of "step-00000400"; empty for any other name.
std::optional<std::int64_t> step_of_folder_name(const std::string& name);
bool is_unfinished(const std::string& name);  ///< "step-00000400.partial"

/// "model.safetensors" or "model-00001-of-00002.safetensors"; shards count from 0.
std::string shard_name(const std::string& kind, int shard, int num_shards);

/// Whether a file of this name lies directly in its folder: "config.json", not "../config.json".
bool is_plain_name(const std::string& name);

/// The complete checkpoints in a folder, oldest first; empty if there is no such folder.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// Removes all but the newest `keep`; 0 keeps all. Each is renamed first, so that a partly removed
/// one never looks like a checkpoint.
void prune_checkpoints(const std::string& folder, std::int64_t keep,
                       FileSystem& files = posix_file_system());

/// Prevents other runs from saving to the same folder while the object lives; makes the folder.
class CheckpointLock : public FolderLock {
 public:
  explicit CheckpointLock(const std::string& folder, FileSystem& files = posix_file_system());
};

}  // namespace strata
