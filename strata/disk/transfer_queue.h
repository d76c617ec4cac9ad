/// Divides transfers into blocks, keeps a bounded number of them in flight, and checks every
/// result.
///
/// A partly moved block is requested again from where it ended, and an interrupted one (EINTR,
/// EAGAIN) is repeated; any other error fails only its own transfer. Memory that the disk cannot
/// use directly, and a transfer's last piece, go through one of the queue's own blocks. The queue
/// has few of these: a transfer that needs one waits until one is free.
///
/// Threads  add() from any; the queue's thread prepares and checks blocks, and sleeps without work.
/// Cost     kOwnBlocks blocks of memory, from the first transfer on that needs one.
/// Errors   a completion carries SystemError that names file and byte. InternalError: an offset
///          that is not aligned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/completion.h"
#include "strata/disk/aligned_buffer.h"
#include "strata/disk/block_io.h"

namespace strata {

inline constexpr std::size_t kDiskAlignment = 4096;  ///< alignment of offsets in the file
inline constexpr std::size_t kDiskBlockBytes = std::size_t{1} << 20;
inline constexpr std::size_t kOwnBlocks = 2;  ///< per queue, for memory that the disk cannot use

/// The memory of a queue's own blocks if no transfer is longer; 0: any length.
std::size_t own_blocks_bytes(std::size_t longest_transfer);

/// Returns the checksum of bytes on disk: the checksum of their blocks' checksums, so that blocks
/// can be summed separately.
std::uint64_t block_digest(std::span<const std::byte> bytes);

/// Keeps memory alive during a transfer: the destructor of every handle waits until the transfer
/// has ended. Copies are handles of the same transfer.
class [[nodiscard]] DiskTransfer {
 public:
  DiskTransfer() = default;  ///< a transfer that has ended
  explicit DiskTransfer(Completion ended) : ended_(std::move(ended)) {}
  DiskTransfer(const DiskTransfer&) = default;
  DiskTransfer(DiskTransfer&&) = default;
  DiskTransfer& operator=(DiskTransfer other) noexcept {
    std::swap(ended_, other.ended_);
    return *this;
  }
  ~DiskTransfer() { ended_.settle(); }

  bool done() const { return ended_.ready(); }
  void wait() const { ended_.wait(); }

  /// Returns the transfer's end for continuations; the caller now keeps the memory alive until
  /// then.
  Completion release() && { return std::exchange(ended_, {}); }

 private:
  Completion ended_;
};

/// Gets the block_digest() of a transfer's bytes on the queue's thread, before wait() returns;
/// wait() throws its exceptions.
using DigestReceiver = std::function<void(std::uint64_t)>;

class TransferQueue {
 public:
  struct File {
    int descriptor = -1;
    std::string path;
    bool direct = false;               ///< opened with O_DIRECT
    std::size_t memory_alignment = 1;  ///< of memory that the disk can use directly
  };
  struct Options {
    DiskBackend backend = DiskBackend::kAuto;
    int depth = 16;
    std::size_t longest_transfer = 0;  ///< bytes; 0: any
    std::vector<std::span<std::byte>> buffers = {};
  };

  TransferQueue(File file, const Options& options, const BlockIoFactory& make_io);
  ~TransferQueue();  ///< waits until all transfers have ended
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  /// `offset` must be aligned; any number of bytes. A write fills the rest of the last 4 KiB with
  /// zeros. A kSync begins when all earlier transfers have ended, and later ones begin after it.
  /// The completion ends on the queue's thread; until then the caller keeps the memory alive and
  /// unchanged.
  Completion add(BlockOp op, std::uint64_t offset, std::span<std::byte> bytes,
                 DigestReceiver digest = {});

  const BlockIoProbe& probe() const { return probe_; }
  std::uint64_t bytes_moved() const { return bytes_moved_; }
  std::size_t memory_bytes() const { return memory_bytes_; }  ///< of the queue's own blocks

 private:
  struct Job {
    BlockOp op;
    std::uint64_t offset;
    std::span<std::byte> bytes;
    DigestReceiver digest;
    std::size_t next = 0;  // first byte that has no slot yet
    int under_way = 0;     // blocks on the disk or waiting for their checksum
    std::vector<std::uint64_t> sums;
    std::exception_ptr error;
    Promise ended;
  };
  struct Slot {
    Job* job = nullptr;
    std::size_t begin = 0, count = 0;  // of the job's bytes
    std::span<std::byte> memory;       // memory of the request: the job's, or the queue's own block
    int own = -1;                      // index of the queue's block; -1: the job's memory
    std::size_t moved = 0;
    int fruitless = 0;  // results in a row that moved nothing
  };

  void run(std::promise<void>& started, const BlockIoFactory& make_io);
  bool fill_slots();
  Job* next_job();
  bool needs_own_block(const Job& job) const;
  std::span<std::byte> take_own_block(Slot& slot, std::size_t count);
  void begin_block(int number, Job& job);
  void submit(int number);
  void judge(const BlockResult& result);
  void fail_block(int number, int error, const std::string& what);
  void end_block(int number);
  void end_part(Job& job);
  void sum_later(const Slot& slot);
  bool sum_blocks();
  void end_job(Job& job);
  void forget_pages(const Job& job) const;
  void fail_all(std::exception_ptr error);

  const File file_;
  const Options options_;
  std::unique_ptr<BlockIo> io_;
  BlockIoProbe probe_;
  std::atomic<std::uint64_t> bytes_moved_{0};
  std::atomic<std::size_t> memory_bytes_{0};

  std::mutex mutex_;
  std::deque<std::unique_ptr<Job>> jobs_;  // not ended yet, in order of add()
  std::exception_ptr broken_;              // set when all transfers fail
  bool stopped_ = false;

  // Used only by the queue's thread.
  std::vector<Slot> slots_;
  std::vector<int> free_slots_;
  AlignedBuffer own_;           // kOwnBlocks blocks; empty until the first is needed
  std::vector<int> free_own_;   // indices of free blocks
  std::vector<Slot> unsummed_;  // uses only job, begin and count
  std::thread thread_;
};

}  // namespace strata
