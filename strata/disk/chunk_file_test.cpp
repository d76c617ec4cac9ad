#include "strata/disk/chunk_file.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "strata/base/random_access_file.h"
#include "strata/base/units.h"
#include "strata/disk/chunk_manifest.h"
#include "strata/disk/disk_folder.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/disk/faulty_block_io.h"

namespace strata {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
const std::vector<std::int64_t> kSizes = {1, 4095, 4096, 4097, 40'000, kMiB, 2 * kMiB + 17};

using Image = std::map<int, Bytes8>;  // chunk -> bytes; what was never written isn't there

class ChunkFileTest : public DiskFormTest {
 protected:
  std::string root() const { return folder_.path("rank-00000"); }
  std::string data() const { return root() + "/" + kChunkDataName; }
  ChunkFileOptions chunk_options() const {
    return {.setting = "memory.disk.path", .file = options()};
  }
  std::unique_ptr<ChunkFile> create() { return ChunkFile::create(root(), kSizes, chunk_options()); }
  // As another process would, after this one's end.
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
INSTANTIATE_TEST_SUITE_P(Disk, ChunkFileTest, ::testing::ValuesIn(kDiskForms), name_of_form);

TEST_P(ChunkFileTest, FindsTheCommittedStepAgain) {
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
    write(*file, later, 2, 2);  // and lost again
    EXPECT_EQ(read_all(*file).at(2), later[2]);
  }
  ASSERT_TRUE(ChunkFile::exists(root()));
  const auto file = open();
  EXPECT_EQ(file->committed_step(), 7);
  EXPECT_EQ(file->user_text(), "{\"a\": \"\\u00fc\"}\n");
  EXPECT_EQ(read_all(*file), first);
}

TEST_P(ChunkFileTest, LeavesWhatWasNotWrittenWhereItIs) {
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
  const std::uintmax_t manifest_bytes =
      std::filesystem::file_size(root() + "/" + kChunkManifestName);
  const ChunkManifest first = manifest();
  write(*file, image, 4, 2);
  write(*file, image, 4, 3);  // twice in a step: to the same slot
  file->commit(2, "");
  EXPECT_EQ(file->bytes_written() - before, 2 * 40'960 + manifest_bytes);
  const ChunkManifest second = manifest();
  for (std::size_t chunk = 0; chunk < kSizes.size(); ++chunk) {
    EXPECT_EQ(*first.chunks[chunk].slot, 0);
    EXPECT_EQ(*second.chunks[chunk].slot, chunk == 4 ? 1 : 0);
  }
  EXPECT_EQ(read_all(*file), image);
  EXPECT_EQ(read_all(*reopen(file)), image);
}

// Random writes, commits and reopens against a copy in memory; the system does what it is asked in
// parts and out of order.
TEST_P(ChunkFileTest, IsWhatACopyInMemoryIs) {
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
    } else if (action < 60) {  // many at once
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

TEST_P(ChunkFileTest, NamesAChunkThatIsNotWhatWasWritten) {
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

// One bit, anywhere on its way to the disk or back.
TEST_P(ChunkFileTest, FindsAFlippedBit) {
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

TEST_P(ChunkFileTest, KeepsTheCommittedStepThroughAWriteThatFails) {
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

// Nobody knows what is durable after a failed sync, so nothing may be written over either step.
TEST_P(ChunkFileTest, WritesNoMoreAfterASyncThatFailed) {
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

// Of a manifest that could not be written nothing is left but the step before it.
TEST_P(ChunkFileTest, CommitsAgainWhereItsManifestFoundNoRoom) {
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

TEST_P(ChunkFileTest, SaysBeforeAllElseThatTheDiskIsFull) {
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

TEST_P(ChunkFileTest, WritesWhileACommitWaitsAndReadsBesideIt) {
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
  EXPECT_EQ(read_all(*file), image);  // beside the commit
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

// A read that has yet to reach the disk when its slot becomes the one to write to.
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

TEST_P(ChunkFileTest, KeepsASecondRunOutAndSaysWhichHasTheFolder) {
  auto file = create();
  for (const bool replace : {false, true}) {
    ChunkFileOptions options = chunk_options();
    options.replace = replace;
    const ErrorText text = refusal([&] { ChunkFile::create(root(), kSizes, options); });
    EXPECT_EQ(text.operation, "disk.lock");
    EXPECT_EQ(text.where, root());
    EXPECT_NE(text.got.find("host "), std::string::npos);
    EXPECT_NE(text.got.find("process " + std::to_string(::getpid())), std::string::npos);
    EXPECT_NE(text.got.find(" UTC"), std::string::npos);
    EXPECT_NE(text.fix.find("memory.disk.path"), std::string::npos);
  }
  Image image;
  write_all(*file, image, 1);
  file->commit(1, "");
  EXPECT_EQ(refusal([&] { open(); }).operation, "disk.lock");
  file.reset();
  EXPECT_NO_THROW(open());
}

TEST_P(ChunkFileTest, ReplacesAnEarlierRunOnlyIfTold) {
  Image image;
  {
    const auto file = create();
    write_all(*file, image, 1);
    file->commit(1, "");
  }
  EXPECT_EQ(refusal([&] { create(); }).what, "the folder holds a step of an earlier run");
  EXPECT_EQ(read_all(*open()), image);
  ChunkFileOptions options = chunk_options();
  options.replace = true;
  const auto file = ChunkFile::create(root(), {5}, options);
  EXPECT_FALSE(ChunkFile::exists(root()));
  EXPECT_FALSE(file->committed_step());
}

TEST_P(ChunkFileTest, RefusesFilesThatDoNotBelongTogether) {
  Image image;
  {
    const auto file = create();
    write_all(*file, image, 1);
    file->commit(1, "");
  }
  std::vector<std::int64_t> other = kSizes;
  other[3] += 1;
  const ErrorText text = refusal([&] { ChunkFile::open(root(), chunk_options(), other); });
  EXPECT_EQ(text.what, "the folder holds chunks of other sizes, first chunk 3");
  other = kSizes;
  other.push_back(1);
  refusal([&] { ChunkFile::open(root(), chunk_options(), other); });
  std::filesystem::resize_file(data(), 8192);
  EXPECT_EQ(refusal([&] { open(); }).what, "the file has another size than its manifest says");
  EXPECT_EQ(refusal([&] { ChunkFile::open(folder_.path("none"), chunk_options()); }).what,
            "no committed step lies here");
}

TEST_P(ChunkFileTest, RefusesAManifestOfWhichAnyByteIsAnother) {
  Image image;
  {
    const auto file = create();
    write_all(*file, image, 1);
    file->commit(1, "text");
  }
  const std::string path = root() + "/" + kChunkManifestName;
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (std::size_t i = 0; i < text.size(); i += 7) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 2);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_EQ(error_of([&] { open(); }).kind(), ErrorKind::kUser) << i;
  }
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(read_all(*open()), image);
}

TEST(DiskFolder, RefusesWhatCannotHoldTheFile) {
  const DiskScratch scratch;
  const auto refusal = [](const std::string& folder, std::int64_t bytes) {
    const Error error = error_of([&] { require_disk_folder(folder, bytes, "memory.disk.path"); });
    EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
    EXPECT_EQ(error.text().where, "memory.disk.path " + folder);
    EXPECT_FALSE(error.text().fix.empty());
    return error.text();
  };
  EXPECT_NO_THROW(require_disk_folder(scratch.path("to/be/made"), 1 << 20, "x"));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("to")));
  EXPECT_EQ(refusal(scratch.path("new"), INT64_MAX / 2).what, "the disk is too full");
  std::ofstream(scratch.path("file")) << "x";
  EXPECT_EQ(refusal(scratch.path("file"), 0).what, "this is no folder");
  EXPECT_EQ(refusal(scratch.path("file/below"), 0).what, "this is no folder");
  if (std::filesystem::is_directory("/dev/shm")) {
    EXPECT_EQ(refusal("/dev/shm/new", 1).got, "a tmpfs");
  }
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit low{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &low);
  const ErrorText text = refusal(scratch.path(), (1 << 20) + 1);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(text.fix, "raise the limit (ulimit -f)");
}

// Its own view of the file system has the folder read-only.
TEST(DiskFolder, RefusesAReadOnlyFileSystem) {
  const DiskScratch scratch;
  const std::string folder = scratch.path();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, folder.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      ::_exit(77);
    try {
      ChunkFile::create(folder + "/new", {100}, {.setting = "memory.disk.path"});
    } catch (const UserError& error) {
      ::_exit(error.text().what == "the file system is read-only" ? 0 : 2);
    } catch (...) {
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no file system may be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace strata
