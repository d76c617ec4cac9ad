#include "strata/base/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  const int error = errno;
  throw SystemError({.operation = "data.write",
                     .where = path,
                     .what = what,
                     .expected = "",
                     .got = std::strerror(error),
                     .fix = error == ENOSPC ? "free space on this disk"
                                            : "check that the folder exists and is writable"});
}

}  // namespace

DurableFile::DurableFile(std::string path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) fail(path_, "the file cannot be made");
}

DurableFile::~DurableFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void DurableFile::write(std::span<const std::byte> bytes) {
  checksum_.add(bytes);
  digest_.bytes += static_cast<std::int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ::ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, "the file cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

FileDigest DurableFile::close() {
  if (::fsync(descriptor_) != 0) fail(path_, "the file cannot be written");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(path_, "the file cannot be closed");
  digest_.checksum = checksum_.value();
  return digest_;
}

void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail(folder, "the folder cannot be opened");
  // EINVAL: some file systems cannot sync a folder, and need not.
  const int error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  errno = error;
  if (error != 0) fail(folder, "the folder cannot be written");
}

void rename_durably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail(to, "'" + from + "' cannot be renamed");
  const std::filesystem::path folder = std::filesystem::path(to).parent_path();
  sync_folder(folder.empty() ? "." : folder.string());
}

}  // namespace strata
