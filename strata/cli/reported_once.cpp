#include "strata/cli/reported_once.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

namespace strata {
namespace {

// The variable is external input: only a file that the launcher made is written to.
int inherited_reported_errors() {
  const char* value = std::getenv(kLaunchVariable);
  const int file = value ? std::atoi(value) : -1;
  return file > STDERR_FILENO && ::fcntl(file, F_GET_SEALS) >= 0 ? file : -1;
}

std::string read_all(int file) {
  struct stat status{};
  ::fstat(file, &status);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t got = ::pread(file, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace

int open_reported_errors() { return ::memfd_create("reported", 0); }

void report_once(const std::string& error) {
  const int file = inherited_reported_errors();
  if (file < 0) {
    std::cerr << error << '\n';
    return;
  }
  // fcntl() locks belong to a process; inherited descriptors would share a lock of flock().
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  ::fcntl(file, F_SETLKW, &lock);
  const std::string reported = read_all(file);
  const std::string entry = error + '\0';
  if (reported.find(entry) == std::string::npos) {
    std::cerr << error << '\n' << std::flush;
    // If this fails, another process prints the error again.
    [[maybe_unused]] const ssize_t written =
        ::pwrite(file, entry.data(), entry.size(), static_cast<::off_t>(reported.size()));
  }
  lock.l_type = F_UNLCK;
  ::fcntl(file, F_SETLK, &lock);
}

}  // namespace strata
