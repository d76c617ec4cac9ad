/// Checks parts of a file: a checksum for every 4 MiB, so that a reader verifies no more than it
/// reads.
///
/// Threads  a verifier from any thread.
/// Cost     each chunk is read once, at the rate of memory.
/// Errors   UserError that names the file, when a chunk's checksum is another.
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
#include "strata/base/mapped_file.h"

namespace strata {

inline constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;

/// What a file holds, without its name. The last chunk may be shorter.
struct ChunkDigest {
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> checksums;  ///< one a chunk
  friend bool operator==(const ChunkDigest&, const ChunkDigest&) = default;
};

/// Digests a file while it is written.
class ChunkDigester {
 public:
  void add(std::span<const std::byte> bytes);
  ChunkDigest finish();

 private:
  ChunkDigest digest_;
  std::optional<Checksum> chunk_;
};

/// Verifies what is about to be read of a mapped file.
class ChunkVerifier {
 public:
  ChunkVerifier(std::shared_ptr<const MappedFile> file, ChunkDigest expected);

  /// Bytes [begin, end) of the file; `reader` says in errors what they were wanted for.
  void require(std::size_t begin, std::size_t end, const std::string& reader);
  void require_all();

 private:
  std::shared_ptr<const MappedFile> file_;
  ChunkDigest expected_;
  std::vector<std::atomic<bool>> verified_;
};

}  // namespace strata
