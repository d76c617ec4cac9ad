/// Keeps other runs from using the same folder, which it makes, as long as the object lives.
///
/// The lock is the system's (flock on FOLDER/LOCK): it goes with the process, however that ends.
///
/// Threads  one.
/// Errors   UserError that says which process of which host has it since when, or that the folder
///          cannot be made or written to.
#pragma once

#include <string>

#include "strata/base/durable_file.h"

namespace strata {

inline constexpr const char* kLockName = "LOCK";

class FolderLock {
 public:
  /// What it is for, in the words of its errors.
  struct Use {
    std::string operation;   ///< "checkpoint.lock"
    std::string taken;       ///< "another run saves its checkpoints here"
    std::string unwritable;  ///< "checkpoints cannot be written to this folder"
    std::string fix;         ///< when it is taken
  };

  FolderLock(const std::string& folder, const Use& use, FileSystem& files = posix_file_system());
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace strata
