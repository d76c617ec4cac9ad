// Disks that fail, are full or flip bits: tests what is lost, the errors, and whether the run can
// resume.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>

#include "strata/disk/chunk_files_test.h"
#include "strata/disk/faulty_block_io.h"

namespace strata {
namespace {

class ChunkFileFaults : public ChunkFileTest {};
INSTANTIATE_TEST_SUITE_P(Disk, ChunkFileFaults, ::testing::ValuesIn(kDiskForms), name_of_form);

TEST_P(ChunkFileFaults, NamesChunkWithWrongBytes) {
  Image image;
  {
    const auto file = create();
    write_all(*file, image, 1);
    file->commit(3, "");
  }
  const std::uint64_t offset = lay_out_chunks(kSizes)[6].offset;
  {
    std::fstream bytes(data(), std::ios::binary | std::ios::in | std::ios::out);
    bytes.seekg(static_cast<std::streamoff>(offset) + kMiB + 5);
    const char byte = static_cast<char>(bytes.get() ^ 16);
    bytes.seekp(static_cast<std::streamoff>(offset) + kMiB + 5);
    bytes.put(byte);
  }
  const auto file = open();
  Bytes8 into(static_cast<std::size_t>(kSizes[6]));
  const Error error = error_of([&] { file->read(6, into).wait(); });
  EXPECT_EQ(error.kind(), ErrorKind::kSystem);
  EXPECT_EQ(error.text().where, data() + ", chunk 6 at byte " + std::to_string(offset));
  EXPECT_EQ(error.text().expected.size(), 16u);
  EXPECT_NE(error.text().expected, error.text().got);
  into.resize(static_cast<std::size_t>(kSizes[5]));
  file->read(5, into).wait();
  EXPECT_EQ(into, image[5]);
}

// Flips one bit on its way to the disk or back.
TEST_P(ChunkFileFaults, FindsAFlippedBit) {
  for (const BlockOp op : {BlockOp::kRead, BlockOp::kWrite}) {
    for (std::size_t bit = 0; bit < 40'000 * 8; bit += 31'111) {
      std::atomic<bool> once = true;
      ChunkFileOptions flipping = chunk_options();
      flipping.replace = true;
      flipping.block_io = faulty_block_io(make_block_io, [&](const BlockRequest& request) {
        if (request.op != op || !once.exchange(false)) return BlockFault{};
        return BlockFault{.flip = bit};
      });
      const auto file = ChunkFile::create(root(), kSizes, flipping);
      const Bytes8 bytes = random_chunk(4, bit);
      Bytes8 into(bytes.size());
      file->write(4, bytes).wait();
      EXPECT_EQ(error_of([&] { file->read(4, into).wait(); }).kind(), ErrorKind::kSystem) << bit;
    }
  }
}

TEST_P(ChunkFileFaults, KeepsTheCommittedStepThroughAWriteThatFails) {
  Image image;
  std::atomic<int> error = 0;
  ChunkFileOptions failing = chunk_options();
  failing.block_io = faulty_block_io(make_block_io, [&](const BlockRequest& request) {
    return BlockFault{.error = request.op == BlockOp::kWrite ? error.load() : 0};
  });
  auto file = ChunkFile::create(root(), kSizes, failing);
  write_all(*file, image, 1);
  file->commit(1, "");
  error = ENOSPC;
  const Bytes8 bytes = random_chunk(6, 2);
  const DiskTransfer write = file->write(6, bytes);
  const std::string place = data() + ", byte ";
  EXPECT_EQ(error_of([&] { write.wait(); }).text().where.substr(0, place.size()), place);
  Bytes8 into(bytes.size());
  EXPECT_EQ(error_of([&] { file->read(6, into).wait(); }).text().operation, "disk.write");
  EXPECT_EQ(error_of([&] { file->commit(2, ""); }).text().got, std::strerror(ENOSPC));
  EXPECT_EQ(file->committed_step(), 1);
  error = 0;
  image[6] = bytes;
  file->write(6, bytes).wait();
  file->commit(2, "");
  EXPECT_EQ(read_all(*file), image);
  EXPECT_EQ(reopen(file)->committed_step(), 2);
}

// Harms a file that a run has open: its bytes are lost when the run ends.
void harm(const std::string& path, int way) {
  namespace fs = std::filesystem;
  if (way == 1) fs::copy_file(path, path + ".copy");
  if (way <= 1) fs::remove(path);
  if (way == 1) fs::rename(path + ".copy", path);
  if (way == 2) fs::resize_file(path, fs::file_size(path) - 4096);
  if (way == 3) {
    fs::rename(path, path + ".moved");
    fs::create_symlink(path + ".moved", path);
  }
}

TEST_P(ChunkFileFaults, RefusesCommitToRemovedFile) {
  for (int way = 0; way < 4; ++way) {
    ChunkFileOptions options = chunk_options();
    options.replace = true;
    auto file = ChunkFile::create(root(), kSizes, options);
    Image image;
    write_all(*file, image, 1);
    file->commit(1, "");
    file->require_committed();
    write(*file, image, 0, 2);
    harm(data(), way);
    for (int again = 0; again < 2; ++again) {
      const Error error = error_of([&] { file->commit(2, ""); });
      EXPECT_EQ(error.kind(), ErrorKind::kSystem) << way;
      EXPECT_EQ(error.text().operation, "disk.check") << way;
      EXPECT_EQ(error.text().where, data()) << way;
    }
    EXPECT_EQ(ChunkFile::commits(root()).front().step, 1);
    EXPECT_EQ(error_of([&] { file->require_committed(); }).kind(), ErrorKind::kSystem) << way;
    file.reset();
    std::filesystem::remove(data());
  }
}

TEST_P(ChunkFileFaults, ReportsRemovedManifest) {
  const std::string path = root() + "/" + kChunkManifestName;
  const auto file = create();
  Image image;
  write_all(*file, image, 1);
  file->commit(1, "");
  const std::string first = path + ".first";
  std::filesystem::copy_file(path, first);
  write(*file, image, 0, 2);
  file->commit(2, "");
  file->require_committed();
  const auto expect_missed = [&] {
    const Error error = error_of([&] { file->require_committed(); });
    EXPECT_EQ(error.kind(), ErrorKind::kSystem) << error.what();
    EXPECT_EQ(error.text().where, path);
  };
  std::filesystem::resize_file(path, 100);
  expect_missed();
  std::filesystem::rename(first, path);
  expect_missed();
  std::filesystem::remove(path);
  expect_missed();
  std::filesystem::create_directory(path);
  expect_missed();
  EXPECT_EQ(error_of([&] { file->commit(3, ""); }).kind(), ErrorKind::kSystem);
}

// After a failed sync it is unknown what is durable, so neither step may be overwritten.
TEST_P(ChunkFileFaults, RefusesWritesAfterFailedSync) {
  Image image;
  std::atomic<bool> fails = false;
  ChunkFileOptions failing = chunk_options();
  failing.block_io = faulty_block_io(make_block_io, [&](const BlockRequest& request) {
    return BlockFault{.error = request.op == BlockOp::kSync && fails ? EIO : 0};
  });
  auto file = ChunkFile::create(root(), kSizes, failing);
  write_all(*file, image, 1);
  file->commit(1, "");
  const Image committed = image;
  write_all(*file, image, 2);
  fails = true;
  EXPECT_EQ(error_of([&] { file->commit(2, ""); }).text().operation, "disk.sync");
  fails = false;
  EXPECT_EQ(error_of([&] { file->commit(2, ""); }).text().operation, "disk.sync");
  EXPECT_EQ(error_of([&] { file->write(0, image[0]).wait(); }).text().operation, "disk.sync");
  EXPECT_EQ(read_all(*file), image);
  EXPECT_EQ(read_all(*reopen(file)), committed);
}

// A manifest that could not be written leaves only the step before it.
TEST_P(ChunkFileFaults, CommitsAgainAfterFullDiskForManifest) {
  struct FullDisk : FileSystem {
    ::ssize_t write(int descriptor, std::span<const std::byte> bytes) override {
      if (!full) return FileSystem::write(descriptor, bytes);
      errno = ENOSPC;
      return -1;
    }
    bool full = false;
  } files;
  ChunkFileOptions full = chunk_options();
  full.files = &files;
  Image image;
  auto file = ChunkFile::create(root(), kSizes, full);
  write_all(*file, image, 1);
  files.full = true;
  EXPECT_EQ(error_of([&] { file->commit(1, ""); }).kind(), ErrorKind::kSystem);
  EXPECT_FALSE(ChunkFile::exists(root()));
  files.full = false;
  write(*file, image, 2, 2);
  file->commit(1, "");
  EXPECT_EQ(read_all(*reopen(file)), image);
}

TEST_P(ChunkFileFaults, RefusesFullDiskAtCreation) {
  struct FullDisk : FileSystem {
    int allocate(int, std::int64_t) override {
      errno = ENOSPC;
      return -1;
    }
  } files;
  ChunkFileOptions full = chunk_options();
  full.files = &files;
  const Error error = error_of([&] { ChunkFile::create(root(), kSizes, full); });
  EXPECT_EQ(error.kind(), ErrorKind::kSystem);
  EXPECT_EQ(error.text().where, data());
  EXPECT_EQ(error.text().got, std::strerror(ENOSPC));
  EXPECT_FALSE(std::filesystem::exists(data()));
  EXPECT_NO_THROW(create());
}

}  // namespace
}  // namespace strata
