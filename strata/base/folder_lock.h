/// Creates a folder and keeps other runs from using it while the object lives.
///
/// The lock is flock() on FOLDER/LOCK: the system releases it when the process ends for any reason.
///
/// Threads  one.
/// Errors   UserError: another process holds the lock (names process, host and time), or the folder
///          cannot be created or written to.
#pragma once

#include <string>

#include "strata/base/durable_file.h"

namespace strata {

inline constexpr const char* kLockName = "LOCK";

class FolderLock {
 public:
  /// The purpose of the lock and the texts of its errors.
  struct Use {
    std::string operation;   ///< "checkpoint.lock"
    std::string in_use;      ///< "another run saves its checkpoints here"
    std::string unwritable;  ///< "checkpoints cannot be written to this folder"
    std::string fix;         ///< the fix if the lock is taken
  };

  FolderLock(const std::string& folder, const Use& use, FileSystem& files = posix_file_system());
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace strata
