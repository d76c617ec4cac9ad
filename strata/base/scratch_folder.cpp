#include "strata/base/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "strata/base/errors.h"

namespace strata {

ScratchFolder::ScratchFolder() {
  std::error_code missing;
  const std::filesystem::path place = std::filesystem::temp_directory_path(missing);
  path_ = (place / "strata-XXXXXX").string();
  const int error = missing ? missing.value() : ::mkdtemp(path_.data()) ? 0 : errno;
  if (error == 0) return;
  throw SystemError({.operation = "base.scratch_folder",
                     .where = missing ? "TMPDIR" : place.string(),
                     .what = "no temporary folder can be made",
                     .expected = "a folder that can be written to",
                     .got = std::strerror(error),
                     .fix = "set TMPDIR to one"});
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace strata
