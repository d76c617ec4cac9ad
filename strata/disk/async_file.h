/// Reads and writes a file of whole blocks in the background, past the page cache.
///
///     AsyncFile file("/scratch/a", {.depth = 16});
///     DiskTransfer read = file.read(0, memory);   // returns at once
///     ...
///     read.wait();                                // sleeps; throws what went wrong
///
/// What it finds, in this order: io_uring with the file and the memory registered, as far as the
/// kernel's limits allow, or threads that call preadv and pwritev; O_DIRECT, or where the file
/// system has none (overlays, tmpfs) buffered reads and writes of which the page cache keeps
/// nothing. probe() says which, and why.
///
/// Reads and writes have a queue each, so that neither waits behind the other.
///
/// Threads  all methods, from any; results are judged on two threads of the file's own. Not across
///          fork().
/// Cost     a system call a block of 1 MiB; a copy where the memory isn't aligned as the disk wants it
///          (memory_alignment()) and for a last piece that is no multiple of 4 KiB. 2 MiB of memory of its
///          own for each way in which something is copied, less where transfers are shorter.
/// Errors   the constructor: UserError, the file cannot be opened, is no regular file of whole 4 KiB, or
///          another process holds it.
///          wait(): SystemError that names file and byte: disk full, input/output error, a file that
///          became shorter, a disk that makes no progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/disk/block_io.h"
#include "strata/disk/transfer_queue.h"

namespace strata {

struct AsyncFileOptions {
  DiskBackend backend = DiskBackend::kAuto;
  bool direct = true;  ///< O_DIRECT where the file system has it
  int depth = 16;      ///< blocks of 1 MiB under way, of reads and of writes each
  /// Memory that most transfers use: registered with the kernel if its limits allow.
  std::vector<std::span<std::byte>> buffers = {};
  std::size_t longest_transfer = 0;  ///< bytes; 0: any
};

/// What a file is read and written with, for people and for `doctor`.
struct DiskProbe {
  BlockIoProbe io;
  bool direct = false;
  std::string why_buffered;  ///< why O_DIRECT isn't used; ""
  std::string text() const;  ///< "io_uring, O_DIRECT, registered file and buffers"
};

/// The fix where another program has changed what a run keeps on its disk.
inline constexpr const char* kLeaveFolderAlone =
    "go on from a checkpoint, or begin anew, and leave the folder to the run";

class AsyncFile {
 public:
  /// Opens a file that is there, whose size is a multiple of 4 KiB; no other process opens it as
  /// long as this one has it. Requests of a process that was killed are waited for.
  explicit AsyncFile(const std::string& path, const AsyncFileOptions& options = {},
                     const BlockIoFactory& make_io = make_block_io);
  ~AsyncFile();  ///< waits for all transfers
  AsyncFile(const AsyncFile&) = delete;
  AsyncFile& operator=(const AsyncFile&) = delete;

  /// The offset is a multiple of 4 KiB, the number of bytes any. A write fills the last 4 KiB with
  /// zeros. The order of transfers that overlap is the caller's business.
  DiskTransfer read(std::uint64_t offset, std::span<std::byte> into, DigestReceiver digest = {});
  DiskTransfer write(std::uint64_t offset, std::span<const std::byte> from,
                     DigestReceiver digest = {});

  /// Makes durable what was written by all writes that began before it.
  Completion sync();

  /// Refuses (SystemError) unless the path still leads to this file and the file has kept its size: what
  /// is written to a file that was removed or replaced is lost when the process ends.
  void require_in_place() const;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  const DiskProbe& probe() const { return probe_; }
  std::size_t memory_alignment() const { return memory_alignment_; }
  std::size_t memory_bytes() const;     ///< of the file's own
  std::uint64_t bytes_read() const;     ///< by the disk, since it was opened
  std::uint64_t bytes_written() const;  ///< the same

 private:
  void open(const AsyncFileOptions& options);
  void lock() const;
  bool try_direct() const;
  TransferQueue::File file() const;

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::size_t memory_alignment_ = 1;
  DiskProbe probe_;
  std::unique_ptr<TransferQueue> reads_, writes_;
};

}  // namespace strata
