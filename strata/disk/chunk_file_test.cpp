// Tests writes, reads and commits of a chunk file, also in parallel.
#include "strata/disk/chunk_file.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "strata/base/random_access_file.h"
#include "strata/disk/chunk_files_test.h"
#include "strata/disk/faulty_block_io.h"

namespace strata {
namespace {

INSTANTIATE_TEST_SUITE_P(Disk, ChunkFileTest, ::testing::ValuesIn(kDiskForms), name_of_form);

TEST_P(ChunkFileTest, ReopensCommittedStep) {
  Image first, later;
  {
    const auto file = create();
    EXPECT_FALSE(file->committed_step());
    EXPECT_EQ(std::filesystem::file_size(data()),
              static_cast<std::uintmax_t>(ChunkFile::file_bytes(kSizes)));
    write_all(*file, first, 1);
    EXPECT_EQ(read_all(*file), first);
    file->commit(7, "{\"a\": \"\\u00fc\"}\n");
    EXPECT_EQ(file->committed_step(), 7);
    write(*file, later, 2, 2);  // lost, because not committed
    EXPECT_EQ(read_all(*file).at(2), later[2]);
  }
  ASSERT_TRUE(ChunkFile::exists(root()));
  const auto file = open();
  EXPECT_EQ(file->committed_step(), 7);
  EXPECT_EQ(file->user_text(), "{\"a\": \"\\u00fc\"}\n");
  EXPECT_EQ(read_all(*file), first);
}

TEST_P(ChunkFileTest, KeepsSlotOfUnwrittenChunks) {
  Image image;
  auto file = create();
  write_all(*file, image, 1);
  file->commit(1, "");
  const std::uint64_t before = file->bytes_written();
  const auto manifest = [&] {
    const FileUse use{.operation = "test.open", .fix = ""};
    const std::string path = root() + "/" + kChunkManifestName;
    return parse_chunk_manifest(read_file(path, use, 1 << 20), path);
  };
  const ChunkManifest first = manifest();
  write(*file, image, 4, 2);
  write(*file, image, 4, 3);  // twice in a step: to the same slot
  file->commit(2, "");
  const std::uintmax_t manifest_bytes =
      std::filesystem::file_size(root() + "/" + kChunkManifestName);
  EXPECT_EQ(file->bytes_written() - before, 2 * 40'960 + manifest_bytes);
  const ChunkManifest second = manifest();
  for (std::size_t chunk = 0; chunk < kSizes.size(); ++chunk) {
    EXPECT_EQ(*first.chunks[chunk].slot, 0);
    EXPECT_EQ(*second.chunks[chunk].slot, chunk == 4 ? 1 : 0);
  }
  EXPECT_EQ(read_all(*file), image);
  EXPECT_EQ(read_all(*reopen(file)), image);
}

// Random writes, commits and reopens, compared with a copy in memory; the system performs requests
// in parts and out of order.
TEST_P(ChunkFileTest, EqualsCopyInMemory) {
  std::mutex mutex;
  std::mt19937_64 noise(5), random(6);
  ChunkFileOptions noisy = chunk_options();
  noisy.block_io = faulty_block_io(make_block_io, [&](const BlockRequest& request) {
    const std::lock_guard lock(mutex);
    BlockFault fault;
    if (noise() % 4 == 0) fault.error = noise() % 2 == 0 ? EINTR : EAGAIN;
    if (request.op != BlockOp::kSync && noise() % 2 == 0)
      fault.at_most = 1 + noise() % request.bytes.size();
    if (noise() % 4 == 0) fault.overtaken_by = static_cast<int>(noise() % 4);
    return fault;
  });
  std::unique_ptr<ChunkFile> file = ChunkFile::create(root(), kSizes, noisy);
  Image image, committed;
  std::optional<std::int64_t> step;
  for (std::uint64_t i = 0; i < 250; ++i) {
    const std::uint64_t action = random() % 100;
    const int chunk = static_cast<int>(random() % kSizes.size());
    if (action < 50) {
      write(*file, image, chunk, i);
    } else if (action < 60) {  // many in parallel
      std::vector<DiskTransfer> writes;
      for (int each = 0; each < file->num_chunks(); ++each) {
        image[each] = random_chunk(each, i);
        writes.push_back(file->write(each, image[each]));
      }
      if (random() % 2 == 0) {  // a commit waits for them
        file->commit(static_cast<std::int64_t>(i), "at once");
        step = static_cast<std::int64_t>(i);
        committed = image;
      }
    } else if (action < 80) {
      if (image.contains(chunk)) {
        Bytes8 into(image[chunk].size());
        file->read(chunk, into).wait();
        ASSERT_EQ(into, image[chunk]) << i;
      }
    } else if (action < 90) {
      file->commit(static_cast<std::int64_t>(i), std::to_string(i));
      step = static_cast<std::int64_t>(i);
      committed = image;
    } else if (step) {
      file.reset();
      file = ChunkFile::open(root(), noisy, kSizes);
      ASSERT_EQ(file->committed_step(), step);
      image = committed;
    }
    if (i % 20 == 0) {
      ASSERT_EQ(read_all(*file), image) << i;
    }
  }
  EXPECT_TRUE(step);
}

TEST_P(ChunkFileTest, ReadsDuringCommitAndWritesAfterwards) {
  std::atomic<bool> slow = false, in_sync = false, may_end = false;
  ChunkFileOptions options = chunk_options();
  options.block_io = faulty_block_io(make_block_io, [&](const BlockRequest& request) {
    if (request.op == BlockOp::kSync && slow) {
      in_sync = true;
      in_sync.notify_all();
      may_end.wait(false);
    }
    return BlockFault{};
  });
  Image image;
  auto file = ChunkFile::create(root(), kSizes, options);
  write_all(*file, image, 1);
  file->commit(1, "");
  write_all(*file, image, 2);
  const Image committed = image;
  slow = true;
  std::thread commit([&] { file->commit(2, ""); });
  in_sync.wait(false);
  EXPECT_EQ(read_all(*file), image);  // during the commit
  std::atomic<bool> begun = false;
  std::thread writer([&] {
    image[4] = random_chunk(4, 3);
    const DiskTransfer write = file->write(4, image[4]);
    begun = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(begun);  // its slot is the committed one until the commit has ended
  may_end = true;
  may_end.notify_all();
  commit.join();
  writer.join();
  slow = false;
  EXPECT_EQ(read_all(*file), image);
  EXPECT_EQ(read_all(*reopen(file)), committed);
}

// A read has not reached the disk yet when its slot is selected for the next write.
TEST_P(ChunkFileTest, WritesToASlotWhenItsLastReadHasEnded) {
  std::atomic<bool> hold = false, written = false;
  ChunkFileOptions options = chunk_options();
  options.block_io = faulty_block_io(make_block_io, [&](const BlockRequest& request) {
    for (int wait = 0; hold && request.op == BlockOp::kRead && !written && wait < 30; ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return BlockFault{};
  });
  Image image;
  const auto file = ChunkFile::create(root(), kSizes, options);
  write_all(*file, image, 1);
  file->commit(1, "");
  const Bytes8 first = image[4];
  hold = true;
  Bytes8 into(first.size());
  const DiskTransfer read = file->read(4, into);
  write(*file, image, 4, 2);
  file->commit(2, "");
  write(*file, image, 4, 3);  // to the slot that is being read
  written = true;
  EXPECT_NO_THROW(read.wait());
  EXPECT_EQ(into, first);
}

TEST_P(ChunkFileTest, OrdersTransfersOfChunkWithoutBlocking) {
  std::atomic<bool> hold = false;
  ChunkFileOptions options = chunk_options();
  options.block_io = faulty_block_io(make_block_io, [&](const BlockRequest&) {
    hold.wait(true);
    return BlockFault{};
  });
  Image image;
  const auto file = ChunkFile::create(root(), kSizes, options);
  write_all(*file, image, 1);
  const Bytes8 second = random_chunk(4, 2), third = random_chunk(4, 3);
  Bytes8 into(second.size()), last(third.size());
  hold = true;
  const DiskTransfer writes_second = file->write(4, second);
  const DiskTransfer reads_second = file->read(4, into);
  const DiskTransfer writes_third = file->write(4, third);
  const DiskTransfer reads_third = file->read(4, last);
  for (const DiskTransfer* held : {&writes_second, &reads_second, &writes_third, &reads_third})
    EXPECT_FALSE(held->done());
  hold = false;
  hold.notify_all();
  reads_third.wait();
  EXPECT_TRUE(reads_second.done());
  EXPECT_EQ(into, second);
  EXPECT_EQ(last, third);
}

}  // namespace
}  // namespace strata
