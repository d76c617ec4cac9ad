/// Refuses a folder that cannot hold the files of a run, before any file is created in it.
///
/// Errors  UserError, each with a fix: the folder is in memory (tmpfs, ramfs), cannot be written
///         to, is not a folder, has too little space, or files may not become as large as required
///         (ulimit -f).
#pragma once

#include <cstdint>
#include <string>

namespace strata {

/// `setting` names the option that the folder comes from: "memory.disk.path". The folder need not
/// exist; the bytes of an existing `own_file` count as free, because it will be replaced.
void require_disk_folder(const std::string& folder, std::int64_t bytes, const std::string& setting,
                         const std::string& own_file = "");

}  // namespace strata
