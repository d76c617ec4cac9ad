/// Maps a whole file into memory, read-only; the pages are read when they are touched.
///
/// Threads  const, any thread.
/// Errors   UserError: missing, a folder, empty, no permission. A file that shrinks while it is
/// mapped
///          kills the program (SIGBUS), as any mapping does.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace strata {

class MappedFile {
 public:
  /// `operation` and `fix` go into errors: "data.open", "set data.train to a text file".
  static std::shared_ptr<const MappedFile> open(const std::string& path,
                                                const std::string& operation,
                                                const std::string& fix);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace strata
