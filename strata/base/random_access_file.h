/// Reads any part of a file that another program wrote and may be changing.
///
/// Files are read, not mapped: if another program truncates one, the read fails with an error,
/// while a mapping would raise SIGBUS. Opening never blocks, whatever the path leads to.
///
/// Threads  const, any thread.
/// Errors   UserError with the path: missing, no permission, too many links, a name too long, a
///          folder, pipe or device, empty, larger than the limit, shorter than at opening.
///          SystemError: out of descriptors or memory, or the disk fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace strata {

/// The purpose of a file, for errors.
struct FileUse {
  std::string operation;     ///< "data.open"
  std::string fix;           ///< "set data.train to a text file"
  bool follow_links = true;  ///< whether the path may end in a symbolic link

  /// Throws UserError about the contents of the file.
  [[noreturn]] void refuse(const std::string& path, const std::string& what,
                           const std::string& expected, const std::string& got) const;
};

class RandomAccessFile {
 public:
  static std::shared_ptr<const RandomAccessFile> open(const std::string& path, const FileUse& use);
  /// Takes ownership of an open file; errors name it `path`.
  static std::shared_ptr<const RandomAccessFile> adopt(int descriptor, const std::string& path,
                                                       const FileUse& use);
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< bytes at opening, at least 1

  /// Fills `out` from byte `offset` on. Throws UserError if the file has become shorter.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  RandomAccessFile(std::string path, FileUse use, int descriptor);

  std::string path_;
  FileUse use_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// Reads a whole file of at most `max_bytes`.
std::string read_file(const std::string& path, const FileUse& use, std::uint64_t max_bytes);

/// Whether the name exists, even as a broken link.
bool name_exists(const std::string& path);

}  // namespace strata
