/// Cuts transfers into blocks, keeps a bounded number of them under way, and judges every result.
///
/// What the system moves only in part is asked for again from where it ended; what it interrupts
/// (EINTR, EAGAIN) is repeated; anything else fails the transfer that it belongs to and no other.
/// Memory that the disk cannot use directly, and a transfer's last piece, go through a block of the
/// queue's own. The queue has few of these: a block that needs one waits until one is free.
///
/// Threads  add() from any; blocks are prepared and judged on a thread of the queue's, which sleeps
///          while there is nothing to do.
/// Cost     kOwnBlocks blocks of memory, from the first transfer on that needs one.
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

inline constexpr std::size_t kDiskAlignment = 4096;  ///< of every transfer's place in its file
inline constexpr std::size_t kDiskBlockBytes = std::size_t{1} << 20;
inline constexpr std::size_t kOwnBlocks = 2;  ///< of a queue, for what the disk cannot use in place

/// What a queue takes for these, if no transfer is longer; 0: they may be of any length.
std::size_t own_blocks_bytes(std::size_t longest_transfer);

/// The checksum of bytes as they lie on disk: that of the checksums of their blocks, so that blocks
/// are summed as they come and go.
std::uint64_t block_digest(std::span<const std::byte> bytes);

/// Keeps memory that a transfer uses from being freed too early: every handle waits, at its end, until
/// the transfer has ended. Copies are handles of the same transfer.
class [[nodiscard]] DiskTransfer {
 public:
  DiskTransfer() = default;  ///< one that has ended
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

  /// The transfer's end, to continue it; from now on the caller keeps the memory until then.
  Completion release() && { return std::exchange(ended_, {}); }

 private:
  Completion ended_;
};

/// Gets the block_digest() of a transfer's bytes on the queue's thread, before wait() returns; what
/// it throws, wait() throws.
using DigestReceiver = std::function<void(std::uint64_t)>;

class TransferQueue {
 public:
  struct File {
    int descriptor = -1;
    std::string path;
    bool direct = false;               ///< opened with O_DIRECT
    std::size_t memory_alignment = 1;  ///< of memory that the disk can use
  };
  struct Options {
    DiskBackend backend = DiskBackend::kAuto;
    int depth = 16;
    std::size_t longest_transfer = 0;  ///< bytes; 0: any
    std::vector<std::span<std::byte>> buffers = {};
  };

  TransferQueue(File file, const Options& options, const BlockIoFactory& make_io);
  ~TransferQueue();  ///< when all transfers have ended
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  /// The offset is aligned, the number of bytes any; a write fills up to the alignment with zeros.
  /// A kSync begins when all earlier transfers have ended, and later ones begin after it.
  /// Ends on the queue's thread; the memory stays as it is, and alive, until then.
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
    std::size_t next = 0;  // first byte that no slot has had
    int under_way = 0;     // blocks that the disk has, and those to be summed
    std::vector<std::uint64_t> sums;
    std::exception_ptr error;
    Promise ended;
  };
  struct Slot {
    Job* job = nullptr;
    std::size_t begin = 0, count = 0;  // of the job's bytes
    std::span<std::byte> memory;       // what the system is given: the job's, or the slot's own
    int own = -1;                      // the queue's block that `memory` is; -1: the job's memory
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
  std::deque<std::unique_ptr<Job>> jobs_;  // that have not ended, in order of add()
  std::exception_ptr broken_;              // nothing moves any more
  bool stopped_ = false;

  // The queue's thread alone.
  std::vector<Slot> slots_;
  std::vector<int> free_slots_;
  AlignedBuffer own_;           // kOwnBlocks blocks; empty before the first is needed
  std::vector<int> free_own_;   // of these blocks
  std::vector<Slot> unsummed_;  // job, begin and count alone
  std::thread thread_;
};

}  // namespace strata
