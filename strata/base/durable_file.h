/// Writes files so that they survive a power cut, and counts and checksums their bytes on the way.
///
/// A file is durable after close() and sync_folder() of its folder; to replace one, write it under
/// another name, close, and rename.
///
/// Errors  SystemError: disk full, no permission, with the path and the system's words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "strata/base/checksum.h"

namespace strata {

/// What a file holds, without its name.
struct FileDigest {
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

class DurableFile {
 public:
  explicit DurableFile(std::string path);  ///< makes the file, or empties it
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  FileDigest close();  ///< returns when the bytes are on the medium

 private:
  std::string path_;
  int descriptor_;
  FileDigest digest_;
  Checksum checksum_;
};

/// Makes the names in a folder durable: files made, renamed, removed.
void sync_folder(const std::string& folder);

/// Moves `from` to `to` atomically and durably; a file at `to` is replaced.
void rename_durably(const std::string& from, const std::string& to);

}  // namespace strata
