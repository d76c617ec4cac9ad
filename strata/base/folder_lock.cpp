// flock() locks the open file; the text in the file only names the holder.
#include "strata/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "strata/base/errors.h"
#include "strata/base/process_identity.h"

namespace strata {

FolderLock::FolderLock(const std::string& folder, const Use& use, FileSystem& files) {
  make_folders_durably(folder, files);
  const std::string path = folder + "/" + kLockName;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0644);
  if (descriptor_ < 0) throw_error(file_error(use.operation, path, use.unwritable, errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    char text[256] = {};
    const ::ssize_t bytes = ::pread(descriptor_, text, sizeof(text) - 1, 0);
    ::close(descriptor_);
    if (error != EWOULDBLOCK)
      throw_error(file_error(use.operation, path, "the folder cannot be locked", error));
    throw UserError({.operation = use.operation,
                     .where = folder,
                     .what = use.in_use,
                     .expected = "a folder of this run's own",
                     .got = bytes > 0 ? std::string(text, std::strcspn(text, "\n"))
                                      : "a run that has not recorded its identity",
                     .fix = use.fix});
  }
  const std::string holder = text_of(this_process()) + "\n";
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, holder.data(), holder.size(), 0) < 0) {
    const int error = errno;
    ::close(descriptor_);
    throw_error(file_error(use.operation, path, use.unwritable, error));
  }
}

// Without this, a process that reads the file before the next holder has written it would name this
// process.
FolderLock::~FolderLock() {
  [[maybe_unused]] const int emptied = ::ftruncate(descriptor_, 0);
  ::close(descriptor_);
}

}  // namespace strata
