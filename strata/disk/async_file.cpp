// When a process is killed, its requests in the kernel still write. They hold the open file and
// thereby its lock (flock). The next process that opens the file waits for this lock, so no late
// write of the dead process mixes with its own.
#include "strata/disk/async_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr auto kLongestDeath = std::chrono::seconds(30);

// The memory alignment that O_DIRECT requires; a whole page if the kernel (before 6.1) doesn't
// report it.
std::size_t direct_memory_alignment(int descriptor) {
  struct statx status{};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0 && status.stx_dio_mem_align > 0)
    return status.stx_dio_mem_align;
  return kDiskAlignment;
}

void require_whole_blocks(const std::string& path, const struct stat& status) {
  constexpr ErrorSource kErrors{"disk.open",
                                "restore the file from a copy, or name another folder"};
  if (!S_ISREG(status.st_mode))
    throw kErrors.user(path, "this is not a file", "a regular file", "something else");
  if (static_cast<std::size_t>(status.st_size) % kDiskAlignment != 0)
    throw kErrors.user(path, "the file has a size that no run has written",
                       "a multiple of " + std::to_string(kDiskAlignment) + " bytes",
                       std::to_string(status.st_size));
}

}  // namespace

std::string DiskProbe::text() const {
  std::string text = name_of(io.backend);
  if (!io.why_threads.empty()) text += " (" + io.why_threads + ")";
  text += direct ? ", O_DIRECT" : ", buffered (" + why_buffered + ")";
  if (io.backend != DiskBackend::kIoUring) return text;
  if (io.registered_file && io.registered_buffers) return text + ", registered file and buffers";
  if (io.registered_file) text += ", registered file";
  if (!io.why_unregistered.empty())
    text += ", buffers not registered (" + io.why_unregistered + ")";
  return text;
}

AsyncFile::AsyncFile(const std::string& path, const AsyncFileOptions& options,
                     const BlockIoFactory& make_io)
    : path_(path) {
  try {
    open(options);
    const TransferQueue::Options queue = {.backend = options.backend,
                                          .depth = options.depth,
                                          .longest_transfer = options.longest_transfer,
                                          .buffers = options.buffers};
    reads_ = std::make_unique<TransferQueue>(file(), queue, make_io);
    writes_ = std::make_unique<TransferQueue>(file(), queue, make_io);
    probe_.io = reads_->probe();
  } catch (...) {
    reads_.reset();
    if (descriptor_ >= 0) ::close(descriptor_);
    throw;
  }
}

AsyncFile::~AsyncFile() {
  reads_.reset();
  writes_.reset();
  ::flock(descriptor_, LOCK_UN);  // the ring releases the file only some time after its end
  ::close(descriptor_);
}

void AsyncFile::open(const AsyncFileOptions& options) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const auto refuse = [&](const std::string& what, int error) {
    throw_error(file_error("disk.open", path_, what, error));
  };
  if (options.direct) {
    descriptor_ = ::open(path_.c_str(), kFlags | O_DIRECT);
    probe_.why_buffered = "the file system has no O_DIRECT";
  } else {
    probe_.why_buffered = "as requested";
  }
  probe_.direct = descriptor_ >= 0 && try_direct();
  if (!probe_.direct) {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = ::open(path_.c_str(), kFlags);
  }
  if (descriptor_ < 0) refuse("the file cannot be opened", errno);
  // Opening must not wait for the other end of a pipe; with O_NONBLOCK io_uring would return
  // EAGAIN.
  ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) & ~O_NONBLOCK);
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) refuse("the file cannot be opened", errno);
  size_ = static_cast<std::uint64_t>(status.st_size);
  require_whole_blocks(path_, status);
  lock();
  if (probe_.direct) {
    probe_.why_buffered.clear();
    memory_alignment_ = direct_memory_alignment(descriptor_);
  } else {
    // The callers read ahead themselves, in blocks.
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
  }
}

// Some file systems open with O_DIRECT and refuse it later, or require more than 4 KiB alignment.
bool AsyncFile::try_direct() const {
  AlignedBuffer page(kDiskAlignment);
  return ::pread(descriptor_, page.bytes().data(), kDiskAlignment, 0) >= 0;
}

void AsyncFile::lock() const {
  const auto last = std::chrono::steady_clock::now() + kLongestDeath;
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK)
      throw_error(file_error("disk.open", path_, "the file cannot be locked", errno));
    if (std::chrono::steady_clock::now() > last)
      throw UserError({.operation = "disk.open",
                       .where = path_,
                       .what = "another process uses this file",
                       .expected = "a file of this run's own",
                       .got = "a lock that was held for 30 s",
                       .fix = "end that process, or name another folder"});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TransferQueue::File AsyncFile::file() const {
  return {.descriptor = descriptor_,
          .path = path_,
          .direct = probe_.direct,
          .memory_alignment = memory_alignment_};
}

DiskTransfer AsyncFile::read(std::uint64_t offset, std::span<std::byte> into,
                             DigestReceiver digest) {
  return DiskTransfer(reads_->add(BlockOp::kRead, offset, into, std::move(digest)));
}

DiskTransfer AsyncFile::write(std::uint64_t offset, std::span<const std::byte> from,
                              DigestReceiver digest) {
  // Requests have one type of memory for reads and writes; a write only reads it.
  const std::span<std::byte> bytes(const_cast<std::byte*>(from.data()), from.size());
  return DiskTransfer(writes_->add(BlockOp::kWrite, offset, bytes, std::move(digest)));
}

Completion AsyncFile::sync() { return writes_->add(BlockOp::kSync, 0, {}); }

void AsyncFile::require_in_place() const {
  constexpr ErrorSource kErrors{"disk.check", kLeaveFolderAlone};
  struct stat open{}, named{};
  if (::fstat(descriptor_, &open) != 0)
    throw_error(file_error("disk.check", path_, "the file cannot be looked at", errno));
  if (::lstat(path_.c_str(), &named) != 0)
    throw kErrors.system(path_, "the file was removed while the run used it",
                         "the file that the run opened", std::strerror(errno));
  if (open.st_dev != named.st_dev || open.st_ino != named.st_ino)
    throw kErrors.system(path_, "the file was replaced while the run used it",
                         "the file that the run opened", "another file");
  if (static_cast<std::uint64_t>(open.st_size) != size_)
    throw kErrors.system(path_, "the size of the file was changed while the run used it",
                         std::to_string(size_) + " bytes", std::to_string(open.st_size));
}

std::size_t AsyncFile::memory_bytes() const {
  return reads_->memory_bytes() + writes_->memory_bytes();
}
std::uint64_t AsyncFile::bytes_read() const { return reads_->bytes_moved(); }
std::uint64_t AsyncFile::bytes_written() const { return writes_->bytes_moved(); }

}  // namespace strata
