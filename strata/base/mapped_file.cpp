#include "strata/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "strata/base/errors.h"

namespace strata {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::string& path)
      : value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int value() const { return value_; }

 private:
  int value_;
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path,
                                                   const std::string& operation,
                                                   const std::string& fix) {
  const auto refuse = [&](const std::string& what, const std::string& got) {
    throw UserError({operation, path, what, "a file with at least one byte", got, fix});
  };
  const Descriptor file(path);
  struct stat status{};
  if (file.value() < 0 || ::fstat(file.value(), &status) != 0) {
    refuse(errno == ENOENT ? "there is no such file" : "the file cannot be opened",
           std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode))
    refuse("this is not a file", S_ISDIR(status.st_mode) ? "a folder" : "a device");
  if (status.st_size == 0) refuse("the file is empty", "0 bytes");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value(), 0);
  if (address == MAP_FAILED) {
    throw SystemError({operation, path, "the file cannot be mapped", "", std::strerror(errno),
                       "free memory or raise the limit (ulimit -v)"});
  }
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, {static_cast<const std::byte*>(address), size}));
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

}  // namespace strata
