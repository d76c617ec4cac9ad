// The limit of a group also holds for all groups inside it, so this process's group and all groups
// around it are read. If a container does not see the outer path of its group, the visible root is
// its group.
#include "strata/device/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace strata {
namespace {

namespace fs = std::filesystem;

// Mount folder and file names of a version of cgroups.
struct Groups {
  const char* controller;  // in /proc/self/cgroup
  const char* folder;
  const char* limit;
  const char* used;
  const char* cached;  // key in memory.stat
};
constexpr Groups kGroups[] = {
    {"", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
    {"memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"},
};

// Nothing if the file is missing or contains "max".
std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// Reads a file of lines "name number".
std::optional<std::int64_t> number_of(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string first, rest; file >> first; std::getline(file, rest)) {
    std::int64_t number = 0;
    if (first == name && file >> number) return number;
  }
  return std::nullopt;
}

// `controllers`: names with commas between them; version 2 has one group for all controllers and
// lists none.
bool has(const std::string& controllers, const std::string& controller) {
  if (controller.empty()) return controllers.empty();
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

// Returns the group of this process, such as "/a/b", from lines "id:controllers:/a/b".
std::optional<fs::path> own_group(const fs::path& root, const std::string& controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    std::istringstream parts(line);
    std::string id, controllers, path;
    std::getline(parts, id, ':'), std::getline(parts, controllers, ':'), std::getline(parts, path);
    if (has(controllers, controller)) return fs::path(path).lexically_normal();
  }
  return std::nullopt;
}

void limit_to_group(HostMemory& memory, const fs::path& group, const Groups& groups) {
  const std::optional<std::int64_t> limit = number_in(group / groups.limit);
  if (!limit) return;
  memory.bytes = std::min(memory.bytes, *limit);
  const std::int64_t used = number_in(group / groups.used).value_or(0) -
                            number_of(group / "memory.stat", groups.cached).value_or(0);
  memory.free_bytes = std::clamp<std::int64_t>(*limit - used, 0, memory.free_bytes);
}

}  // namespace

HostMemory host_memory(const std::string& input) {
  const fs::path root = input;
  HostMemory memory;
  if (const auto kibibytes = number_of(root / "proc/meminfo", "MemTotal:")) {
    memory.bytes = *kibibytes << 10;
  } else {
    memory.bytes = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE);
  }
  const auto available = number_of(root / "proc/meminfo", "MemAvailable:");
  memory.free_bytes = available ? *available << 10 : memory.bytes;
  for (const Groups& groups : kGroups) {
    const std::optional<fs::path> own = own_group(root, groups.controller);
    if (!own) continue;
    for (fs::path group = *own;; group = group.parent_path()) {
      limit_to_group(memory, root / groups.folder / group.relative_path(), groups);
      if (group == group.parent_path()) break;
    }
  }
  return memory;
}

}  // namespace strata
