#include "strata/base/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace strata {

int FileSystem::create(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

::ssize_t FileSystem::write(int descriptor, std::span<const std::byte> bytes) {
  return ::write(descriptor, bytes.data(), bytes.size());
}

int FileSystem::sync(int descriptor) { return ::fsync(descriptor); }

int FileSystem::close(int descriptor) { return ::close(descriptor); }

int FileSystem::make_folder(const std::string& path) { return ::mkdir(path.c_str(), 0755); }

int FileSystem::rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str());
}

int FileSystem::exchange(const std::string& a, const std::string& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
}

int FileSystem::sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  // EINVAL: some file systems cannot sync a folder, and need not.
  const int error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  errno = error;
  return error == 0 ? 0 : -1;
}

int FileSystem::remove_all(const std::string& path) {
  std::error_code failed;
  std::filesystem::remove_all(path, failed);
  errno = failed.value();
  return failed ? -1 : 0;
}

FileSystem& posix_file_system() {
  static FileSystem files;
  return files;
}

}  // namespace strata
