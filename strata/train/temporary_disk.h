/// Makes a folder beside what a run keeps on its disk, for states that nobody will go on from, and removes
/// it at the end: what is there stays as it was.
///
/// Threads  one; every process of a run has its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace strata {

class TemporaryDisk {
 public:
  /// `disk`: memory.disk.path; empty: nothing is made. `use` and `process` name the folder in it.
  TemporaryDisk(const std::string& disk, const std::string& use, int process = 0);
  ~TemporaryDisk();
  TemporaryDisk(const TemporaryDisk&) = delete;
  TemporaryDisk& operator=(const TemporaryDisk&) = delete;

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // that were not there; the deepest first
};

}  // namespace strata
