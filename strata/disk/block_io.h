/// Moves blocks between memory and one open file: the interface below AsyncFile.
///
/// It has three implementations: io_uring (disk/uring_block_io.cpp), threads that call preadv and
/// pwritev (disk/thread_block_io.cpp), and one for tests that fails on demand
/// (disk/faulty_block_io.h). A result is the system's own, unchecked: the caller checks each one.
///
/// Threads  one thread creates, uses and destroys it; any thread may call wake().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace strata {

/// The ways to move blocks.
enum class DiskBackend : std::uint8_t {
  kAuto,     ///< io_uring if the kernel allows it, else threads
  kIoUring,  ///< io_uring, or an error
  kThreads
};
const char* name_of(DiskBackend backend);

enum class BlockOp : std::uint8_t { kRead, kWrite, kSync };

/// One block to move. kSync makes all earlier writes durable and has no bytes.
struct BlockRequest {
  BlockOp op = BlockOp::kRead;
  int slot = 0;  ///< comes back with the result; below the depth; one request at a time
  std::uint64_t offset = 0;
  std::span<std::byte> bytes = {};  ///< a write only reads them
};

struct BlockResult {
  int slot = 0;
  std::int64_t result = 0;  ///< bytes moved, which may be fewer than requested; or -errno
};

/// The chosen implementation and the reasons, for messages.
struct BlockIoProbe {
  DiskBackend backend = DiskBackend::kThreads;
  std::string why_threads;  ///< why it isn't io_uring; "" if that wasn't tried
  bool registered_file = false;
  bool registered_buffers = false;
  std::string why_unregistered;  ///< why buffers aren't registered; "" with threads
};

class BlockIo {
 public:
  virtual ~BlockIo() = default;  ///< waits for requests in flight

  /// Starts a request; doesn't wait for it.
  virtual void submit(const BlockRequest& request) = 0;

  /// Sleeps until there is a result or wake() was called; appends the results.
  virtual void wait(std::vector<BlockResult>& results) = 0;

  /// Ends the current or the next wait().
  virtual void wake() = 0;

  virtual const BlockIoProbe& probe() const = 0;
};

struct BlockIoSetup {
  DiskBackend backend = DiskBackend::kAuto;
  int descriptor = -1;
  int depth = 1;  ///< maximum number of requests in flight
  /// Memory that most requests will use: registered with the kernel if its limits allow.
  std::vector<std::span<std::byte>> buffers = {};
};

/// Called on the thread that uses the result.
using BlockIoFactory = std::function<std::unique_ptr<BlockIo>(const BlockIoSetup&)>;

/// Makes the implementation of `setup.backend`. Throws SystemError if it is io_uring and the kernel
/// refuses that.
std::unique_ptr<BlockIo> make_block_io(const BlockIoSetup& setup);

/// Returns null if the kernel refuses (seccomp, sysctl, too old); `refusal` then states why.
std::unique_ptr<BlockIo> uring_block_io(const BlockIoSetup& setup, std::string& refusal);

std::unique_ptr<BlockIo> thread_block_io(const BlockIoSetup& setup, std::string why_threads);

}  // namespace strata
