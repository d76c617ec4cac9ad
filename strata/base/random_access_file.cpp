// The file is opened before it is checked (fstat of the descriptor, not stat of the path), so that
// the checked file is the one that is read, even if the path changes in between.
#include "strata/base/random_access_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/units.h"

namespace strata {
namespace {

std::string kind_of(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) return "a folder";
  if (S_ISFIFO(status.st_mode)) return "a pipe";
  return S_ISSOCK(status.st_mode) ? "a socket" : "a device";
}

}  // namespace

void FileUse::refuse(const std::string& path, const std::string& what, const std::string& expected,
                     const std::string& got) const {
  throw UserError({operation, path, what, expected, got, fix});
}

// Without O_NONBLOCK, opening a pipe without a writer would block forever.
RandomAccessFile::RandomAccessFile(std::string path, FileUse use, int descriptor)
    : path_(std::move(path)), use_(std::move(use)), descriptor_(descriptor) {
  struct stat status{};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    const int error = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    const bool link = error == ELOOP && !use_.follow_links;
    throw_error(file_error(use_.operation, path_,
                           error == ENOENT ? "there is no such file"
                           : link          ? "a symbolic link stands where a file must"
                                           : "the file cannot be opened",
                           error, error == ENOENT ? use_.fix : ""));
  }
  const auto refuse = [&](const std::string& what, const std::string& got) {
    ::close(descriptor_);
    use_.refuse(path_, what, "a file with at least one byte", got);
  };
  if (!S_ISREG(status.st_mode)) refuse("this is not a file", kind_of(status));
  if (status.st_size == 0) refuse("the file is empty", "0 bytes");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

std::shared_ptr<const RandomAccessFile> RandomAccessFile::open(const std::string& path,
                                                               const FileUse& use) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (use.follow_links ? 0 : O_NOFOLLOW);
  return std::shared_ptr<const RandomAccessFile>(
      new RandomAccessFile(path, use, ::open(path.c_str(), flags)));
}

std::shared_ptr<const RandomAccessFile> RandomAccessFile::adopt(int descriptor,
                                                                const std::string& path,
                                                                const FileUse& use) {
  return std::shared_ptr<const RandomAccessFile>(new RandomAccessFile(path, use, descriptor));
}

RandomAccessFile::~RandomAccessFile() { ::close(descriptor_); }

void RandomAccessFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  STRATA_CHECK(offset <= size_ && out.size() <= size_ - offset, "base.read");
  while (!out.empty()) {
    const ::ssize_t count =
        ::pread(descriptor_, out.data(), out.size(), static_cast<::off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_error(file_error(use_.operation, path_, "the file cannot be read", errno));
    if (count == 0) {
      throw UserError({.operation = use_.operation,
                       .where = path_,
                       .what = "the file became shorter while it was read",
                       .expected = std::to_string(size_) + " bytes, as when it was opened",
                       .got = "an end at byte " + std::to_string(offset),
                       .fix = "leave the file alone while the program runs"});
    }
    offset += static_cast<std::uint64_t>(count);
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

std::string read_file(const std::string& path, const FileUse& use, std::uint64_t max_bytes) {
  const auto file = RandomAccessFile::open(path, use);
  if (file->size() > max_bytes) {
    use.refuse(path, "the file is too large for what it should hold",
               "at most " + format_bytes(static_cast<std::int64_t>(max_bytes)),
               format_bytes(static_cast<std::int64_t>(file->size())));
  }
  std::string text(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool name_exists(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

}  // namespace strata
