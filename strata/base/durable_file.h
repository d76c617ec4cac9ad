/// Writes files so that they survive a power cut.
///
/// A file is durable after close() and sync_folder() of its folder; to replace one, write it under
/// another name, close, and rename.
///
/// Errors  UserError: no permission, no such folder. SystemError: disk full, a failing medium. Both
///         with the path and the system's words.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace strata {

/// The operations that files are made durable with, as POSIX has them: -1 and errno where one fails.
///
/// It is a seam: a test derives from it to record the order of operations, to let one fail, or to
/// drop what was not synced.
///
/// Threads  any thread.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual int create(const std::string& path);  ///< makes or empties a file; its descriptor
  virtual ::ssize_t write(int descriptor, std::span<const std::byte> bytes);
  virtual int allocate(int descriptor, std::int64_t bytes);  ///< reserves them on the disk
  virtual int sync(int descriptor);  ///< fsync; nothing where there is no medium, as of a pipe
  virtual int close(int descriptor);
  virtual int make_folder(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int exchange(const std::string& a, const std::string& b);  ///< in one move
  virtual int sync_folder(const std::string& path);
  virtual int remove_all(const std::string& path);
};

FileSystem& posix_file_system();

class DurableFile {
 public:
  /// Makes the file, or empties it.
  explicit DurableFile(std::string path, FileSystem& files = posix_file_system());
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void close();  ///< returns when the bytes are on the medium

 private:
  std::string path_;
  FileSystem& files_;
  int descriptor_;
};

/// Writes a whole file: a report, a trace. Its name is durable only after sync_folder().
void write_file(const std::string& path, std::string_view text);

/// Makes the names in a folder durable: files made, renamed, removed.
void sync_folder(const std::string& folder, FileSystem& files = posix_file_system());

/// Makes a folder and those above it, durably; one that is there is left as it is.
void make_folders_durably(const std::string& folder, FileSystem& files = posix_file_system());

/// Moves `from` to `to` atomically and durably; a file at `to` is replaced.
void rename_durably(const std::string& from, const std::string& to,
                    FileSystem& files = posix_file_system());

/// Puts the folder `fresh` durably in the place of `folder` and removes the old one: in one move
/// where the file system can, else in two (`old` is the name that it has in between).
void replace_folder_durably(const std::string& fresh, const std::string& folder,
                            const std::string& old, FileSystem& files = posix_file_system());

void remove_folder(const std::string& folder, FileSystem& files = posix_file_system());

/// Refuses `path` unless a file can be written there; makes the folders above it. `option` names it
/// in errors: "--report".
void require_writable_file(const std::string& path, const std::string& option);

}  // namespace strata
