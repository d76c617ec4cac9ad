/// Says how much memory the host has for this process: the machine, or the containers that it runs in, whichever
/// has less.
///
/// Source   proc(5); cgroups in both versions: docs.kernel.org/admin-guide/cgroup-v2.html, cgroup-v1/memory.html.
/// Units    bytes.
#pragma once

#include <cstdint>
#include <string>

namespace strata {

struct HostMemory {
  std::int64_t bytes = 0;  ///< at most
  std::int64_t free_bytes =
      0;  ///< without swapping; pages of files that can be read again are free
};

/// `root`: of the file system that has the system's files; a test's own.
HostMemory host_memory(const std::string& root = "/");

}  // namespace strata
