/// Reports how much memory this process may use: of the machine, or of the containers around it if
/// they allow less.
///
/// Source   proc(5); both versions of cgroups: docs.kernel.org/admin-guide/cgroup-v2.html,
///          cgroup-v1/memory.html.
/// Units    bytes.
#pragma once

#include <cstdint>
#include <string>

namespace strata {

struct HostMemory {
  std::int64_t bytes = 0;       ///< upper limit
  std::int64_t free_bytes = 0;  ///< without swapping; cached file pages count as free
};

/// `root`: the root of the file system; tests use their own.
HostMemory host_memory(const std::string& root = "/");

}  // namespace strata
