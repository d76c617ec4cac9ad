#include "strata/disk/async_file.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <thread>

#include "strata/base/random_access_file.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/disk/faulty_block_io.h"

namespace strata {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class AsyncFileTest : public DiskFormTest {
 protected:
  std::string make(std::size_t bytes) const {
    const std::string path = folder_.path("file");
    const int descriptor = ::open(path.c_str(), O_CREAT | O_RDWR, 0644);
    EXPECT_EQ(::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes)), 0);
    ::close(descriptor);
    return path;
  }
  static Bytes8 content(const std::string& path) {
    Bytes8 bytes(std::filesystem::file_size(path));
    RandomAccessFile::open(path, {.operation = "test.open", .fix = ""})->read(0, bytes);
    return bytes;
  }
  BlockIoFactory faulty(BlockFaultSource source) const {
    return faulty_block_io(make_block_io, std::move(source));
  }
};
INSTANTIATE_TEST_SUITE_P(Disk, AsyncFileTest, ::testing::ValuesIn(kDiskForms), name_of_form);

// Sizes around blocks and pages, with aligned and unaligned memory.
TEST_P(AsyncFileTest, ReadsWhatWasWritten) {
  const std::string path = make(8 * kMiB);
  AsyncFile file(path, options());
  for (const std::size_t count : {std::size_t{1}, kDiskAlignment - 1, kDiskAlignment,
                                  kDiskAlignment + 1, kMiB, kMiB + 1, 5 * kMiB + 4097}) {
    for (const std::size_t shift : {0, 1, 64}) {
      SCOPED_TRACE(std::to_string(count) + " bytes, shifted by " + std::to_string(shift));
      const Bytes8 bytes = random_bytes(count, count + shift);
      AlignedBuffer from(count + shift), into(count + shift + 1);
      std::ranges::copy(bytes, from.bytes().begin() + static_cast<std::ptrdiff_t>(shift));
      std::uint64_t written_digest = 0, read_digest = 0;
      file.write(kDiskAlignment * 3, from.bytes().subspan(shift),
                 [&](std::uint64_t digest) { written_digest = digest; })
          .wait();
      into.bytes()[count + shift] = std::byte{7};
      file.read(kDiskAlignment * 3, into.bytes().subspan(shift, count),
                [&](std::uint64_t digest) { read_digest = digest; })
          .wait();
      EXPECT_TRUE(std::ranges::equal(into.bytes().subspan(shift, count), bytes));
      EXPECT_EQ(into.bytes()[count + shift], std::byte{7});  // and no byte more
      EXPECT_EQ(written_digest, block_digest(bytes));
      EXPECT_EQ(read_digest, block_digest(bytes));
      file.sync().wait();
      const Bytes8 there = content(path);
      const auto at = there.begin() + 3 * static_cast<std::ptrdiff_t>(kDiskAlignment);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), at));
      const std::size_t end = (count + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
      for (std::size_t i = count; i < end; ++i)
        ASSERT_EQ(at[static_cast<std::ptrdiff_t>(i)], std::byte{0}) << i;
    }
  }
}

// Every rank has a file: one that transfers whole aligned blocks needs no buffers, others a few
// blocks.
TEST_P(AsyncFileTest, AllocatesBlocksOnlyForCopies) {
  const std::string path = make(8 * kMiB);
  AsyncFileOptions short_ones = options();
  short_ones.longest_transfer = 2 * kDiskAlignment;
  AlignedBuffer memory(4 * kMiB);
  {
    AsyncFile file(path, options());
    file.write(0, memory.bytes()).wait();
    file.read(0, memory.bytes()).wait();
    EXPECT_EQ(file.memory_bytes(), 0u);
    file.write(0, memory.bytes().first(3 * kMiB + 5)).wait();
    EXPECT_EQ(file.memory_bytes(), kOwnBlocks * kDiskBlockBytes);
  }
  AsyncFile file(path, short_ones);
  file.write(0, memory.bytes().first(kDiskAlignment + 5)).wait();
  file.read(0, memory.bytes().first(kDiskAlignment + 5)).wait();
  EXPECT_EQ(file.memory_bytes(), 2 * kOwnBlocks * 2 * kDiskAlignment);
}

TEST_P(AsyncFileTest, ProbeStatesChosenBackend) {
  const AsyncFile file(make(kMiB), options());
  EXPECT_EQ(file.probe().io.backend, GetParam().backend);
  if (!GetParam().direct) {
    EXPECT_EQ(file.probe().why_buffered, "as requested");
  }
  EXPECT_NE(file.probe().text().find(name_of(GetParam().backend)), std::string::npos);
  EXPECT_EQ(file.probe().direct, file.probe().why_buffered.empty());
}

TEST_P(AsyncFileTest, KeepsManyTransfersInFlightAndCountsBytes) {
  AsyncFile file(make(64 * kMiB), options());
  std::vector<Bytes8> written;
  std::vector<DiskTransfer> transfers;
  for (std::size_t i = 0; i < 64; ++i) {
    written.push_back(random_bytes(kMiB - i % 3, i));
    transfers.push_back(file.write(i * kMiB, written.back()));
  }
  for (const DiskTransfer& transfer : transfers) transfer.wait();
  EXPECT_TRUE(transfers.front().done());
  std::vector<Bytes8> read(64);
  transfers.clear();
  for (std::size_t i = 0; i < 64; ++i) {
    read[i].resize(written[i].size());
    transfers.push_back(file.read(i * kMiB, read[i]));
  }
  for (const DiskTransfer& transfer : transfers) transfer.wait();
  EXPECT_EQ(read, written);
  EXPECT_EQ(file.bytes_written(), 64 * kMiB);
  EXPECT_EQ(file.bytes_read(), 64 * kMiB);
}

// The system may move any part of a request and return results in any order.
TEST_P(AsyncFileTest, ResumesAfterShortResult) {
  std::mutex mutex;
  std::mt19937_64 random(3);
  std::atomic<int> shorts = 0;
  const auto source = [&](const BlockRequest& request) {
    const std::lock_guard lock(mutex);
    BlockFault fault;
    const std::uint64_t kind = random() % 8;
    if (request.op == BlockOp::kSync) return fault;
    if (kind == 0) fault.error = EINTR;
    if (kind == 1) fault.error = EAGAIN;
    if (kind >= 2 && kind < 6) fault.at_most = 1 + random() % request.bytes.size();
    if (kind == 2) fault.overtaken_by = 3;
    shorts += fault.at_most < request.bytes.size();
    return fault;
  };
  const std::string path = make(6 * kMiB);
  AsyncFile file(path, options(), faulty(source));
  for (std::uint64_t round = 0; round < 10; ++round) {
    const Bytes8 bytes = random_bytes(5 * kMiB + 4097 + round, round);
    Bytes8 into(bytes.size());
    file.write(0, bytes).wait();
    std::uint64_t digest = 0;
    file.read(0, into, [&](std::uint64_t got) { digest = got; }).wait();
    ASSERT_EQ(into, bytes);
    ASSERT_EQ(digest, block_digest(bytes));
    file.sync().wait();
    const Bytes8 there = content(path);
    ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), there.begin()));
  }
  EXPECT_GT(shorts, 20);
}

TEST_P(AsyncFileTest, NamesFileAndByteOfSystemErrors) {
  const std::string path = make(8 * kMiB);
  for (const auto& [error, op] :
       {std::pair(ENOSPC, BlockOp::kWrite), std::pair(EIO, BlockOp::kRead),
        std::pair(EIO, BlockOp::kWrite)}) {
    const auto source = [error = error, op = op](const BlockRequest& request) {
      const bool here = request.op == op && request.offset == 2 * kMiB + 4096;
      return BlockFault{.error = here ? error : 0};
    };
    AsyncFile file(path, options(), faulty(source));
    Bytes8 bytes = random_bytes(5 * kMiB, 1);
    const DiskTransfer broken =
        op == BlockOp::kRead ? file.read(4096, bytes) : file.write(4096, bytes);
    const DiskTransfer whole = op == BlockOp::kRead
                                   ? file.read(6 * kMiB, std::span(bytes).first(99))
                                   : file.write(6 * kMiB, std::span(bytes).first(99));
    for (int i = 0; i < 2; ++i) {
      const Error failure = error_of([&] { broken.wait(); });
      EXPECT_EQ(failure.kind(), ErrorKind::kSystem);
      EXPECT_EQ(failure.text().operation, op == BlockOp::kRead ? "disk.read" : "disk.write");
      EXPECT_EQ(failure.text().where, path + ", byte " + std::to_string(2 * kMiB + 4096));
      EXPECT_EQ(failure.text().got, std::strerror(error));
      EXPECT_FALSE(failure.text().fix.empty());
    }
    EXPECT_NO_THROW(whole.wait());
  }
}

TEST_P(AsyncFileTest, NamesADiskThatMakesNoProgress) {
  const std::string path = make(kMiB);
  AsyncFile file(path, options(), faulty([](const BlockRequest& request) {
                   if (request.op == BlockOp::kWrite) return BlockFault{.at_most = 0};
                   return BlockFault{.error = EAGAIN};
                 }));
  Bytes8 bytes(4096);
  Error failure = error_of([&] { file.write(0, bytes).wait(); });
  EXPECT_EQ(failure.text().what, "the disk makes no progress");
  EXPECT_EQ(failure.text().got, "a result of 0 bytes where 4096 were requested");
  failure = error_of([&] { file.read(0, bytes).wait(); });
  EXPECT_EQ(failure.text().what, "the disk makes no progress");
  EXPECT_EQ(failure.text().got, std::strerror(EAGAIN));
}

TEST_P(AsyncFileTest, NamesAFileThatBecameShorter) {
  const std::string path = make(4 * kMiB);
  AsyncFile file(path, options());
  std::filesystem::resize_file(path, kMiB);
  Bytes8 bytes(2 * kMiB);
  EXPECT_NO_THROW(file.read(0, std::span(bytes).first(kMiB)).wait());
  const Error failure = error_of([&] { file.read(0, bytes).wait(); });
  EXPECT_EQ(failure.kind(), ErrorKind::kSystem);
  EXPECT_EQ(failure.text().what, "the file became shorter while it was used");
  EXPECT_EQ(failure.text().where, path + ", byte " + std::to_string(kMiB));
}

TEST_P(AsyncFileTest, SyncsAfterAllEarlierWritesAndBeforeLaterOnes) {
  std::mutex mutex;
  std::vector<std::uint64_t> order;  // offsets of writes; 1: a sync
  std::atomic<int> under_way = 0, under_way_at_sync = -1;
  const auto source = [&](const BlockRequest& request) {
    const std::lock_guard lock(mutex);
    if (request.op == BlockOp::kRead) return BlockFault{};
    order.push_back(request.op == BlockOp::kSync ? 1 : request.offset);
    if (request.op == BlockOp::kSync) under_way_at_sync = under_way.load();
    if (request.op == BlockOp::kWrite) ++under_way;
    return BlockFault{.delay = std::chrono::milliseconds(1), .overtaken_by = request.offset == 0};
  };
  AsyncFile file(make(16 * kMiB), options(), faulty(source));
  const Bytes8 bytes = random_bytes(3 * kMiB, 1);
  const auto ended = [&](std::uint64_t) { under_way -= 3; };
  const DiskTransfer first = file.write(0, bytes, ended);
  const DiskTransfer second = file.write(4 * kMiB, bytes, ended);
  const Completion sync = file.sync();
  const DiskTransfer third = file.write(8 * kMiB, bytes, ended);
  sync.wait();
  EXPECT_TRUE(first.done() && second.done());
  third.wait();
  EXPECT_EQ(under_way_at_sync, 0);
  ASSERT_EQ(order.size(), 10u);
  EXPECT_EQ(order[6], 1u);
}

TEST_P(AsyncFileTest, SyncFailureNamesFile) {
  const std::string path = make(kMiB);
  AsyncFile file(path, options(), faulty([](const BlockRequest& request) {
                   return BlockFault{.error = request.op == BlockOp::kSync ? EIO : 0};
                 }));
  const Error failure = error_of([&] { file.sync().wait(); });
  EXPECT_EQ(failure.text().operation, "disk.sync");
  EXPECT_EQ(failure.text().where, path);
}

TEST_P(AsyncFileTest, WaitThrowsErrorOfDigestReceiver) {
  AsyncFile file(make(kMiB), options());
  Bytes8 bytes(100);
  const DiskTransfer read =
      file.read(0, bytes, [](std::uint64_t) { throw SystemError({.what = "not these"}); });
  EXPECT_EQ(error_of([&] { read.wait(); }).text().what, "not these");
  EXPECT_NO_THROW(file.read(0, bytes).wait());
}

TEST_P(AsyncFileTest, FinishesTransfersBeforeDestruction) {
  const Bytes8 bytes = random_bytes(4 * kMiB, 1);
  const std::string path = make(4 * kMiB);
  {
    AsyncFile file(path, options());
    const DiskTransfer forgotten = file.write(0, bytes);
  }
  EXPECT_EQ(content(path), bytes);
}

// If BlockIo itself fails, every waiter gets an error.
TEST_P(AsyncFileTest, FailsAllTransfersWhenBlockIoFails) {
  struct Broken {};
  AsyncFile file(make(4 * kMiB), options(), faulty([](const BlockRequest& request) {
                   if (request.offset == 2 * kMiB) throw Broken();
                   return BlockFault{};
                 }));
  const Bytes8 bytes(4 * kMiB);
  const DiskTransfer first = file.write(0, bytes), second = file.write(0, bytes);
  EXPECT_THROW(first.wait(), Broken);
  EXPECT_THROW(second.wait(), Broken);
  EXPECT_THROW(file.write(0, bytes).wait(), Broken);
}

// Runs `action` in a forked process with fewer rights; the exit code is 0 if it returns true.
template <typename Action>
int in_process(Action action) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 9;
    try {
      code = action() ? 0 : 1;
    } catch (const std::exception& error) {
      ::dprintf(STDERR_FILENO, "%s\n", error.what());
    }
    ::_exit(code);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Makes the kernel refuse io_uring_setup with EPERM and O_DIRECT with EINVAL, as seccomp filters
// and file systems do.
void refuse_both() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECT, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(program), .filter = program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

class RefusingKernelTest : public AsyncFileTest {};
INSTANTIATE_TEST_SUITE_P(Disk, RefusingKernelTest,
                         ::testing::Values(DiskForm{DiskBackend::kThreads, true}), name_of_form);

TEST_P(RefusingKernelTest, FallsBackToThreadsAndPageCache) {
  const std::string path = make(4 * kMiB);
  EXPECT_EQ(in_process([&] {
              refuse_both();
              AsyncFile file(path, {.depth = 4});
              const Bytes8 bytes = random_bytes(3 * kMiB + 5, 1);
              Bytes8 into(bytes.size());
              file.write(0, bytes).wait();
              file.sync().wait();
              file.read(0, into).wait();
              const std::string text = file.probe().text();
              ::dprintf(STDERR_FILENO, "%s\n", text.c_str());
              return into == bytes &&
                     text ==
                         "threads (io_uring_setup: Operation not permitted), buffered (the "
                         "file system has no O_DIRECT)";
            }),
            0);
  EXPECT_EQ(in_process([&] {
              refuse_both();
              const Error error =
                  error_of([&] { AsyncFile(path, {.backend = DiskBackend::kIoUring}); });
              return error.kind() == ErrorKind::kSystem &&
                     error.text().what == "the kernel refuses io_uring";
            }),
            0);
}

TEST_P(RefusingKernelTest, MayLeaveBuffersUnregistered) {
  std::string refusal;
  if (!uring_block_io({.descriptor = STDOUT_FILENO, .depth = 1}, refusal))
    GTEST_SKIP() << "the kernel refuses io_uring: " << refusal;
  const std::string path = make(4 * kMiB);
  ::chmod(folder_.path().c_str(), 0777);
  ::chmod(path.c_str(), 0666);
  const int code = in_process([&] {
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    ::setrlimit(RLIMIT_MEMLOCK, &limit);
    // Root may lock any amount of memory.
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return false;
    AlignedBuffer memory(4 * kMiB);
    AsyncFile file(path, {.depth = 4, .buffers = {memory.bytes()}});
    if (file.probe().io.backend != DiskBackend::kIoUring) return false;
    const Bytes8 bytes = random_bytes(3 * kMiB + 5, 1);
    Bytes8 into(bytes.size());
    file.write(0, bytes).wait();
    file.read(0, into).wait();
    const std::string text = file.probe().text();
    ::dprintf(STDERR_FILENO, "%s\n", text.c_str());
    return into == bytes && !file.probe().io.registered_buffers &&
           text.find(
               "buffers not registered (Cannot allocate memory, ulimit -l allows 1.00 MiB)") !=
               std::string::npos;
  });
  EXPECT_EQ(code, 0);
}

TEST_P(RefusingKernelTest, UsesTheCallersMemoryWhereItIsRegistered) {
  const std::string path = make(4 * kMiB);
  AlignedBuffer memory(4 * kMiB);
  AsyncFile file(path, {.depth = 4, .buffers = {memory.bytes()}});
  const Bytes8 bytes = random_bytes(3 * kMiB, 1);
  std::ranges::copy(bytes, memory.bytes().begin());
  file.write(0, memory.bytes().first(3 * kMiB)).wait();
  std::ranges::fill(memory.bytes(), std::byte{0});
  file.read(0, memory.bytes().subspan(kMiB)).wait();
  EXPECT_TRUE(std::ranges::equal(memory.bytes().subspan(kMiB), bytes));
}

TEST_P(RefusingKernelTest, WaitsUntilOtherProcessReleasesFile) {
  const std::string path = make(kMiB);
  int ready[2], go[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go), 0);
  const pid_t other = ::fork();
  char byte = 0;
  if (other == 0) {
    ::close(go[1]);  // closed when the test ends: then the read ends
    AsyncFile file(path, {.depth = 1});
    ::write(ready[1], "x", 1);
    ::read(go[0], &byte, 1);
    ::_exit(0);
  }
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto begin = std::chrono::steady_clock::now();
  const std::jthread later([&] {
    ::usleep(100'000);
    ::write(go[1], "x", 1);
  });
  const AsyncFile file(path, {.depth = 1});  // waits for the other process to end
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
  ::waitpid(other, nullptr, 0);
}

}  // namespace
}  // namespace strata
