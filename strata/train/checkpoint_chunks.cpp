#include "strata/train/checkpoint_chunks.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"

namespace strata {

void ChunkDigester::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (!chunk_) chunk_.emplace();
    const std::int64_t room = kChunkBytes - digest_.bytes % kChunkBytes;
    const std::size_t count = std::min(bytes.size(), static_cast<std::size_t>(room));
    chunk_->add(bytes.first(count));
    digest_.bytes += static_cast<std::int64_t>(count);
    bytes = bytes.subspan(count);
    if (digest_.bytes % kChunkBytes == 0) {
      digest_.checksums.push_back(chunk_->value());
      chunk_.reset();
    }
  }
}

ChunkDigest ChunkDigester::finish() {
  if (chunk_) digest_.checksums.push_back(chunk_->value());
  chunk_.reset();
  return std::exchange(digest_, {});
}

ChunkVerifier::ChunkVerifier(std::shared_ptr<const MappedFile> file, ChunkDigest expected)
    : file_(std::move(file)),
      expected_(std::move(expected)),
      verified_(expected_.checksums.size()) {
  const auto size = static_cast<std::int64_t>(file_->bytes().size());
  STRATA_CHECK_EQ(size, expected_.bytes, "train.verify_chunks");
  STRATA_CHECK_EQ((size + kChunkBytes - 1) / kChunkBytes,
                  static_cast<std::int64_t>(verified_.size()), "train.verify_chunks");
}

void ChunkVerifier::require(std::size_t begin, std::size_t end, const std::string& reader) {
  if (begin >= end) return;
  const std::span<const std::byte> bytes = file_->bytes();
  for (std::size_t chunk = begin / kChunkBytes; chunk <= (end - 1) / kChunkBytes; ++chunk) {
    if (verified_[chunk]) continue;  // two threads may check the same: no harm
    const std::size_t first = chunk * kChunkBytes;
    const std::size_t count = std::min<std::size_t>(kChunkBytes, bytes.size() - first);
    const std::uint64_t sum = checksum(bytes.subspan(first, count));
    if (sum != expected_.checksums[chunk]) {
      throw UserError({.operation = "train.open_checkpoint",
                       .where = file_->path(),
                       .what = "a file of the checkpoint is damaged: its checksum is another",
                       .expected = checksum_text(expected_.checksums[chunk]),
                       .got = checksum_text(sum) + " in bytes " + std::to_string(first) + " to " +
                              std::to_string(first + count) + ", read for " + reader,
                       .fix = "resume from another checkpoint"});
    }
    verified_[chunk] = true;
  }
}

void ChunkVerifier::require_all() { require(0, file_->bytes().size(), "all of it"); }

}  // namespace strata
