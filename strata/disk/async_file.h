/// Reads and writes a file of whole blocks in the background, past the page cache.
///
///     AsyncFile file("/scratch/a", {.depth = 16});
///     DiskTransfer read = file.read(0, memory);   // returns at once
///     ...
///     read.wait();                                // sleeps; throws what went wrong
///
/// It tries in this order: io_uring, with the file and the memory registered as far as the kernel's
/// limits allow, or else threads that call preadv and pwritev; O_DIRECT, or else, on file systems
/// without it (overlays, tmpfs), buffered reads and writes whose pages are dropped from the page
/// cache. probe() reports the choice and its reason.
///
/// Reads and writes each have a queue, so that neither waits for the other.
///
/// Threads  all methods, from any; two threads of the file check results. Not across fork().
/// Cost     a system call per block of 1 MiB; a copy if the memory isn't aligned for the disk
///          (memory_alignment()) and for a last piece that is not a multiple of 4 KiB. Copies use 2
///          MiB of buffers for each direction that needs them, less if transfers are shorter.
/// Errors   the constructor throws UserError: the file cannot be opened, is not a regular file of
///          whole 4 KiB, or another process holds it. wait() throws SystemError that names file and
///          byte: disk full, input/output error, a file that became shorter, a disk that makes no
///          progress.
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
  bool direct = true;  ///< O_DIRECT if the file system has it
  int depth = 16;      ///< blocks of 1 MiB in flight, for reads and writes each
  /// Memory that most transfers use: registered with the kernel if its limits allow.
  std::vector<std::span<std::byte>> buffers = {};
  std::size_t longest_transfer = 0;  ///< bytes; 0: any
};

/// How a file is read and written, for messages and for `doctor`.
struct DiskProbe {
  BlockIoProbe io;
  bool direct = false;
  std::string why_buffered;  ///< why O_DIRECT isn't used; "" if it is
  std::string text() const;  ///< "io_uring, O_DIRECT, registered file and buffers"
};

/// The fix if another program has changed the files of a run.
inline constexpr const char* kLeaveFolderAlone =
    "resume from a checkpoint or restart, and let only the run write to the folder";

class AsyncFile {
 public:
  /// Opens an existing file whose size is a multiple of 4 KiB, and locks it against other processes
  /// while this object lives. Waits for the requests of a killed process.
  explicit AsyncFile(const std::string& path, const AsyncFileOptions& options = {},
                     const BlockIoFactory& make_io = make_block_io);
  ~AsyncFile();  ///< waits for all transfers
  AsyncFile(const AsyncFile&) = delete;
  AsyncFile& operator=(const AsyncFile&) = delete;

  /// `offset` is a multiple of 4 KiB; any number of bytes. A write fills the last 4 KiB with zeros.
  /// The caller orders transfers that overlap.
  DiskTransfer read(std::uint64_t offset, std::span<std::byte> into, DigestReceiver digest = {});
  DiskTransfer write(std::uint64_t offset, std::span<const std::byte> from,
                     DigestReceiver digest = {});

  /// Makes the data of all earlier writes durable.
  Completion sync();

  /// Throws SystemError unless the path still leads to this file and the file has kept its size:
  /// data written to a removed or replaced file is lost when the process ends.
  void require_in_place() const;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  const DiskProbe& probe() const { return probe_; }
  std::size_t memory_alignment() const { return memory_alignment_; }
  std::size_t memory_bytes() const;     ///< of its copy buffers
  std::uint64_t bytes_read() const;     ///< from the disk, since opening
  std::uint64_t bytes_written() const;  ///< to the disk, since opening

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
