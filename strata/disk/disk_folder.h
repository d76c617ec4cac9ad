/// Refuses a folder that cannot hold what is to be kept on disk, before anything is made in it.
///
/// Errors  UserError, each with what to do: the folder lies in memory (tmpfs, ramfs), cannot be
///         written to, is no folder, has too little space, or files may not become as large as asked
///         for (ulimit -f).
#pragma once

#include <cstdint>
#include <string>

namespace strata {

/// `setting` names in errors what the user wrote the folder into: "memory.disk.path". The folder
/// needn't be there; what is there of `own_file` counts as free, because it is going to be replaced.
void require_disk_folder(const std::string& folder, std::int64_t bytes, const std::string& setting,
                         const std::string& own_file = "");

}  // namespace strata
