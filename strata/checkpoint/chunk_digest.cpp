// A part of a chunk cannot be verified alone, so the whole chunk is read once and recorded as
// verified. A file that changes afterwards is not noticed: the disk is trusted while the program
// reads.
#include "strata/checkpoint/chunk_digest.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "strata/base/errors.h"

namespace strata {

namespace fs = std::filesystem;

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

std::shared_ptr<const VerifiedFile> VerifiedFile::open(const std::string& path, const FileUse& use,
                                                       const ChunkDigest* digest) {
  const std::shared_ptr<VerifiedFile> file(new VerifiedFile(path, use));
  if (digest == nullptr) {
    file->file_ = RandomAccessFile::open(path, use);
    return file;
  }
  const auto refuse = [&](const std::string& what, const std::string& got) {
    use.refuse(path, what, std::to_string(digest->bytes) + " bytes", got);
  };
  if (!name_exists(path)) refuse("a file of the checkpoint is missing", "none");
  std::error_code none;
  const std::uintmax_t size =
      fs::is_regular_file(fs::symlink_status(path, none)) ? fs::file_size(path, none) : 1;
  if (size > 0 || digest->bytes == 0) {
    FileUse here = use;
    here.follow_links = false;  // files of a manifest are in its folder
    if (size > 0) file->file_ = RandomAccessFile::open(path, here);
  }
  const auto bytes = static_cast<std::int64_t>(file->size());
  if (bytes != digest->bytes)
    refuse(bytes < digest->bytes ? "a file of the checkpoint is truncated"
                                 : "a file of the checkpoint has grown",
           std::to_string(bytes));
  file->expected_ = *digest;
  file->verified_ = std::vector<std::atomic<bool>>(digest->checksums.size());
  return file;
}

void VerifiedFile::verify(std::size_t chunk, std::span<const std::byte> bytes,
                          const std::string& reader) const {
  const std::uint64_t sum = checksum(bytes), expected = expected_->checksums[chunk];
  if (sum != expected) {
    const std::size_t first = chunk * kChunkBytes;
    use_.refuse(path_, "a file of the checkpoint is damaged: its checksum is another",
                checksum_text(expected),
                checksum_text(sum) + " in bytes " + std::to_string(first) + " to " +
                    std::to_string(first + bytes.size()) + ", read for " + reader);
  }
  verified_[chunk] = true;
}

void VerifiedFile::read(std::uint64_t begin, std::span<std::byte> out,
                        const std::string& reader) const {
  STRATA_CHECK(begin <= size() && out.size() <= size() - begin, "checkpoint.read");
  if (out.empty()) return;
  if (!expected_) return file_->read(begin, out);
  std::vector<std::byte> whole;
  while (!out.empty()) {
    const std::size_t chunk = begin / kChunkBytes, first = chunk * kChunkBytes;
    const std::size_t bytes = std::min<std::uint64_t>(kChunkBytes, size() - first);
    const std::size_t count = std::min<std::size_t>(out.size(), first + bytes - begin);
    if (verified_[chunk]) {
      file_->read(begin, out.first(count));
    } else if (count == bytes) {
      file_->read(begin, out.first(count));
      verify(chunk, out.first(count), reader);
    } else {  // two threads may verify the same chunk
      whole.resize(bytes);
      file_->read(first, whole);
      verify(chunk, whole, reader);
      std::memcpy(out.data(), whole.data() + (begin - first), count);
    }
    begin += count;
    out = out.subspan(count);
  }
}

std::string VerifiedFile::text(std::uint64_t max_bytes) const {
  if (size() > max_bytes) {
    use_.refuse(path_, "the file is too large for what it should hold",
                "at most " + std::to_string(max_bytes) + " bytes", std::to_string(size()));
  }
  std::string text(size(), '\0');
  read(0, std::as_writable_bytes(std::span(text)), "all of it");
  return text;
}

void VerifiedFile::verify_all() const {
  std::vector<std::byte> chunk;
  for (std::uint64_t begin = 0; begin < size(); begin += kChunkBytes) {
    chunk.resize(std::min<std::uint64_t>(kChunkBytes, size() - begin));
    read(begin, chunk, "all of it");
  }
}

}  // namespace strata
