// Test fixture: a chunk file on each kind of disk access, and its expected contents.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/disk/chunk_file.h"
#include "strata/disk/chunk_manifest.h"
#include "strata/disk/disk_forms_test.h"

namespace strata {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;
inline const std::vector<std::int64_t> kSizes = {1, 4095, 4096, 4097, 40'000, kMiB, 2 * kMiB + 17};

using Image = std::map<int, Bytes8>;  // chunk -> bytes; without chunks that were never written

class ChunkFileTest : public DiskFormTest {
 protected:
  std::string root() const { return folder_.path("rank-00000"); }
  std::string data() const { return root() + "/" + kChunkDataName; }
  ChunkFileOptions chunk_options() const {
    return {.setting = "memory.disk.path", .file = options()};
  }
  std::unique_ptr<ChunkFile> create() { return ChunkFile::create(root(), kSizes, chunk_options()); }
  // Opens the file like another process, after closing it here.
  std::unique_ptr<ChunkFile> reopen(std::unique_ptr<ChunkFile>& file) {
    file.reset();
    return open();
  }
  std::unique_ptr<ChunkFile> open() { return ChunkFile::open(root(), chunk_options(), kSizes); }

  static Bytes8 random_chunk(int chunk, std::uint64_t seed) {
    return random_bytes(static_cast<std::size_t>(kSizes[static_cast<std::size_t>(chunk)]),
                        seed * 100 + static_cast<std::uint64_t>(chunk));
  }
  static void write(ChunkFile& file, Image& image, int chunk, std::uint64_t seed) {
    image[chunk] = random_chunk(chunk, seed);
    file.write(chunk, image[chunk]).wait();
  }
  static void write_all(ChunkFile& file, Image& image, std::uint64_t seed) {
    for (int chunk = 0; chunk < file.num_chunks(); ++chunk) write(file, image, chunk, seed);
  }
  static Image read_all(ChunkFile& file) {
    Image image;
    std::vector<DiskTransfer> reads;
    for (int chunk = 0; chunk < file.num_chunks(); ++chunk) {
      if (!file.has(chunk)) continue;
      image[chunk].resize(static_cast<std::size_t>(file.chunk_bytes(chunk)));
      reads.push_back(file.read(chunk, image[chunk]));
    }
    for (const DiskTransfer& read : reads) read.wait();
    return image;
  }
  static ErrorText refusal(const std::function<void()>& action) {
    const Error error = error_of(action);
    EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
    EXPECT_FALSE(error.text().fix.empty());
    return error.text();
  }
};

}  // namespace strata
