#include "strata/disk/disk_folder.h"

#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "strata/base/errors.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr const char* kOperation = "disk.check";

// Returns the folder, or its nearest existing parent.
std::string nearest_there(const std::string& folder) {
  std::error_code none;
  std::filesystem::path path = std::filesystem::absolute(folder, none);
  while (!std::filesystem::exists(path, none) && path != path.root_path())
    path = path.parent_path();
  return path.string();
}

std::int64_t occupied_bytes(const std::string& file) {
  struct stat status{};
  if (file.empty() || ::stat(file.c_str(), &status) != 0) return 0;
  return static_cast<std::int64_t>(status.st_blocks) * 512;
}

}  // namespace

void require_disk_folder(const std::string& folder, std::int64_t bytes, const std::string& setting,
                         const std::string& own_file) {
  const std::string there = nearest_there(folder);
  const auto refuse = [&](const std::string& what, const std::string& expected,
                          const std::string& got, const std::string& fix) {
    throw UserError({.operation = kOperation,
                     .where = setting + " " + folder,
                     .what = what,
                     .expected = expected,
                     .got = got,
                     .fix = fix});
  };
  const std::string another = "set " + setting + " to a folder on a disk";
  struct statfs kind{};
  struct statvfs space{};
  if (::statfs(there.c_str(), &kind) != 0 || ::statvfs(there.c_str(), &space) != 0)
    throw_error(file_error(kOperation, setting + " " + folder, "the folder cannot be used", errno));
  if (!std::filesystem::is_directory(there))
    refuse("this is no folder", "a folder", "a file at " + there, another);
  if (kind.f_type == TMPFS_MAGIC || kind.f_type == RAMFS_MAGIC)
    refuse("this folder lies in memory, which it is to relieve", "a folder on a disk",
           kind.f_type == TMPFS_MAGIC ? "a tmpfs" : "a ramfs", another);
  if ((space.f_flag & ST_RDONLY) != 0)
    refuse("the file system is read-only", "one that can be written to", "read-only at " + there,
           another);
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    throw_error(
        file_error(kOperation, setting + " " + folder, "the folder cannot be written to", errno));
  const std::int64_t free_bytes =
      static_cast<std::int64_t>(space.f_bavail * space.f_frsize) + occupied_bytes(own_file);
  if (free_bytes < bytes)
    refuse("the disk is too full", format_bytes(bytes), format_bytes(free_bytes) + " free",
           "free " + format_bytes(bytes - free_bytes) + " on that disk, or set " + setting +
               " to a folder on another");
  rlimit longest{};
  if (::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur != RLIM_INFINITY &&
      longest.rlim_cur < static_cast<std::uint64_t>(bytes))
    refuse("files may not become as large as this one", format_bytes(bytes),
           format_bytes(static_cast<std::int64_t>(longest.rlim_cur)),
           "raise the limit (ulimit -f)");
}

}  // namespace strata
