/// Reads any part of a file that someone else wrote, and may be changing.
///
/// Files are read, not mapped: one that another program truncates meanwhile ends in an error here
/// and would end a mapping in SIGBUS. Opening never waits, whatever the path leads to.
///
/// Threads  const, any thread.
/// Errors   UserError with the path: missing, no permission, too many links, a name too long, a
///          folder, pipe or device, empty, larger than asked for, shorter than it was. SystemError:
///          descriptors or memory exhausted, the medium fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace strata {

/// What a file is read for; goes into errors.
struct FileUse {
  std::string operation;     ///< "data.open"
  std::string fix;           ///< "set data.train to a text file"
  bool follow_links = true;  ///< whether the path may end in a symbolic link

  /// Refuses what stands in the file: a UserError.
  [[noreturn]] void refuse(const std::string& path, const std::string& what,
                           const std::string& expected, const std::string& got) const;
};

class RandomAccessFile {
 public:
  static std::shared_ptr<const RandomAccessFile> open(const std::string& path, const FileUse& use);
  /// Takes over an open file; errors call it `path`.
  static std::shared_ptr<const RandomAccessFile> adopt(int descriptor, const std::string& path,
                                                       const FileUse& use);
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< bytes when it was opened, at least 1

  /// Fills `out` from byte `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  RandomAccessFile(std::string path, FileUse use, int descriptor);

  std::string path_;
  FileUse use_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// A whole file of at most `max_bytes`.
std::string read_file(const std::string& path, const FileUse& use, std::uint64_t max_bytes);

/// Whether anything has this name, be it a link that leads nowhere.
bool name_exists(const std::string& path);

}  // namespace strata
