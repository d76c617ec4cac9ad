/// Verifies parts of a file: it has a checksum for every 4 MiB, so that a reader verifies only what
/// it reads.
///
/// Threads  a digester: one; a verified file: any, its methods are const.
/// Cost     a chunk is read whole once, at the rate of memory; its parts later are read alone.
/// Errors   UserError that names the file: missing, a link, of another size, damaged.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strata/base/checksum.h"
#include "strata/base/random_access_file.h"

namespace strata {

inline constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;

/// The size and checksums of a file, without its name. The last chunk may be shorter.
struct ChunkDigest {
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> checksums;  ///< one per chunk
  friend bool operator==(const ChunkDigest&, const ChunkDigest&) = default;
};

/// Computes the digest of a file while it is written.
class ChunkDigester {
 public:
  void add(std::span<const std::byte> bytes);
  ChunkDigest finish();

 private:
  ChunkDigest digest_;
  std::optional<Checksum> chunk_;
};

/// A file that is verified while it is read, if it has a digest.
class VerifiedFile {
 public:
  /// `digest`: null for another program's file, which may be a symbolic link.
  static std::shared_ptr<const VerifiedFile> open(const std::string& path, const FileUse& use,
                                                  const ChunkDigest* digest);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return file_ ? file_->size() : 0; }

  /// Fills `out` from byte `begin` on; errors name the `reader`.
  void read(std::uint64_t begin, std::span<std::byte> out, const std::string& reader) const;

  /// The whole file; UserError if it has more than `max_bytes`.
  std::string text(std::uint64_t max_bytes) const;

  void verify_all() const;

 private:
  VerifiedFile(std::string path, FileUse use) : path_(std::move(path)), use_(std::move(use)) {}
  void verify(std::size_t chunk, std::span<const std::byte> bytes, const std::string& reader) const;

  std::string path_;
  FileUse use_;
  std::shared_ptr<const RandomAccessFile> file_;  // null: the file is empty
  std::optional<ChunkDigest> expected_;
  mutable std::vector<std::atomic<bool>> verified_;
};

}  // namespace strata
