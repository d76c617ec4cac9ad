/// Names a folder next to a run's disk states, for states that no run will resume from, and removes
/// it at the end. Existing files are not changed.
///
/// Threads  one; every process of a run has its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace strata {

class TemporaryDisk {
 public:
  /// `disk`: memory.disk.path; empty: no folder. `use` and `process` form the folder's name.
  TemporaryDisk(const std::string& disk, const std::string& use, int process = 0);
  ~TemporaryDisk();
  TemporaryDisk(const TemporaryDisk&) = delete;
  TemporaryDisk& operator=(const TemporaryDisk&) = delete;

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
  // folders that did not exist before; the deepest first
  std::vector<std::filesystem::path> made_;
};

}  // namespace strata
