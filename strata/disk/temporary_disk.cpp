// The user of the folder creates it when it writes; it rejects a disk that is too small.
#include "strata/disk/temporary_disk.h"

#include <unistd.h>

#include <system_error>

namespace strata {

namespace fs = std::filesystem;

TemporaryDisk::TemporaryDisk(const std::string& disk, const std::string& use, int process) {
  if (disk.empty()) return;
  // Hosts that share a disk may use the same process number.
  path_ = fs::path(disk) / (use + "-" + std::to_string(process) + "-" + std::to_string(::getpid()));
  for (fs::path folder = path_; !folder.empty() && !fs::exists(folder);
       folder = folder.parent_path())
    made_.push_back(folder);
}

TemporaryDisk::~TemporaryDisk() {
  std::error_code error;
  if (!path_.empty()) fs::remove_all(path_, error);
  for (const fs::path& folder : made_) fs::remove(folder, error);  // only if it is empty
}

}  // namespace strata
