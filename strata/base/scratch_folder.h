/// Creates an empty folder in the system's folder for temporary files and removes it at the end.
///
/// Errors  SystemError: the folder for temporary files is missing or cannot be written to.
#pragma once

#include <string>

namespace strata {

class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string path(const std::string& name = "") const {
    return name.empty() ? path_ : path_ + "/" + name;
  }

 private:
  std::string path_;
};

}  // namespace strata
