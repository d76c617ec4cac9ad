/// Writes files so that they survive a power cut.
///
/// A file is durable after close() and sync_folder() of its folder. To replace a file, write the
/// new one under another name, close it, and rename it.
///
/// Errors  UserError: no permission, no such folder. SystemError: disk full, a failing disk. Both
///         state the path and the system's text.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace strata {

/// Performs the operations that make files durable, as POSIX does: they return -1 and set errno on
/// failure.
///
/// Tests derive from this class to record the order of operations, to let one fail, or to drop
/// bytes that were not synced.
///
/// Threads  any.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual int create(const std::string& path);  ///< makes or empties a file; returns its descriptor
  virtual ::ssize_t write(int descriptor, std::span<const std::byte> bytes);
  virtual int allocate(int descriptor, std::int64_t bytes);  ///< reserves disk space
  virtual int sync(int descriptor);  ///< fsync; nothing for pipes and the like
  virtual int close(int descriptor);
  virtual int make_folder(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int exchange(const std::string& a, const std::string& b);  ///< swaps both atomically
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
  void close();  ///< returns when the bytes are on the disk

 private:
  std::string path_;
  FileSystem& files_;
  int descriptor_;
};

/// Writes a whole file, such as a report or a trace. The name is durable only after sync_folder().
void write_file(const std::string& path, std::string_view text);

/// Makes the names in a folder durable: files created, renamed or removed.
void sync_folder(const std::string& folder, FileSystem& files = posix_file_system());

/// Creates a folder and its parents durably; leaves existing folders unchanged.
void make_folders_durably(const std::string& folder, FileSystem& files = posix_file_system());

/// Moves `from` to `to` atomically and durably; a file at `to` is replaced.
void rename_durably(const std::string& from, const std::string& to,
                    FileSystem& files = posix_file_system());

/// Replaces `folder` durably by the folder `fresh` and removes the old one: atomically if the file
/// system can, otherwise in two renames, with `old` as the name of the old folder in between.
void replace_folder_durably(const std::string& fresh, const std::string& folder,
                            const std::string& old, FileSystem& files = posix_file_system());

void remove_folder(const std::string& folder, FileSystem& files = posix_file_system());

/// Throws UserError unless a file can be written at `path`; creates its parent folders. `option`
/// names the path in errors: "--report".
void require_writable_file(const std::string& path, const std::string& option);

/// Refuses a folder that cannot be made or written to (UserError); makes none. `field` names it in
/// errors.
void require_writable_folder(const std::string& path, const std::string& field);

}  // namespace strata
