/// Performs the operations that files are made durable with, as POSIX has them.
///
/// It is a seam: a test derives from it to record the order of operations, to let one fail, or to
/// drop what was not synced.
///
/// Threads  any thread.
/// Errors   -1 and errno, as the calls of the same names.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>

namespace strata {

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual int create(const std::string& path);  ///< makes or empties a file; its descriptor
  virtual ::ssize_t write(int descriptor, std::span<const std::byte> bytes);
  virtual int sync(int descriptor);  ///< fsync
  virtual int close(int descriptor);
  virtual int make_folder(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int exchange(const std::string& a, const std::string& b);  ///< in one move
  virtual int sync_folder(const std::string& path);
  virtual int remove_all(const std::string& path);
};

FileSystem& posix_file_system();

}  // namespace strata
