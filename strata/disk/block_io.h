/// Moves blocks between memory and one open file: the seam below AsyncFile.
///
/// Three forms: io_uring (disk/uring_block_io.cpp), threads that call preadv and pwritev
/// (disk/thread_block_io.cpp), and one for tests that breaks on demand (disk/faulty_block_io.h). A
/// result is what the system said, unjudged: who asks looks at every one.
///
/// Threads  made, used and destroyed by one thread; wake() from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace strata {

/// How blocks are moved: `memory.disk.io`.
enum class DiskBackend : std::uint8_t {
  kAuto,     ///< io_uring where the kernel lets us, else threads
  kIoUring,  ///< or an error
  kThreads
};
const char* name_of(DiskBackend backend);

enum class BlockOp : std::uint8_t { kRead, kWrite, kSync };

/// Names and addresses of one block that is to be moved. kSync makes all that was written before it
/// durable and has no bytes.
struct BlockRequest {
  BlockOp op = BlockOp::kRead;
  int slot = 0;  ///< comes back with the result; less than the depth, one request at a time
  std::uint64_t offset = 0;
  std::span<std::byte> bytes = {};  ///< a write only reads them
};

struct BlockResult {
  int slot = 0;
  std::int64_t result = 0;  ///< bytes moved, which may be fewer than asked for; or -errno
};

/// What was found when it was made, for people.
struct BlockIoProbe {
  DiskBackend backend = DiskBackend::kThreads;
  std::string why_threads;  ///< why it isn't io_uring; "" where that wasn't tried
  bool registered_file = false;
  bool registered_buffers = false;
  std::string why_unregistered;  ///< why buffers aren't registered; "" where threads are used
};

class BlockIo {
 public:
  virtual ~BlockIo() = default;  ///< waits for what is under way

  /// Starts a request; doesn't wait for it.
  virtual void submit(const BlockRequest& request) = 0;

  /// Sleeps until there is a result or wake() was called; appends what is there.
  virtual void wait(std::vector<BlockResult>& results) = 0;

  /// Ends a wait(), or the next one.
  virtual void wake() = 0;

  virtual const BlockIoProbe& probe() const = 0;
};

struct BlockIoSetup {
  DiskBackend backend = DiskBackend::kAuto;
  int descriptor = -1;
  int depth = 1;  ///< requests under way at most
  /// Memory that most requests will use: registered with the kernel if its limits allow.
  std::vector<std::span<std::byte>> buffers = {};
};

/// Called on the thread that will use what it makes.
using BlockIoFactory = std::function<std::unique_ptr<BlockIo>(const BlockIoSetup&)>;

/// What `setup.backend` says. SystemError: io_uring was asked for and the kernel refuses it.
std::unique_ptr<BlockIo> make_block_io(const BlockIoSetup& setup);

/// Null where the kernel refuses (seccomp, sysctl, too old); `refusal` then says why.
std::unique_ptr<BlockIo> uring_block_io(const BlockIoSetup& setup, std::string& refusal);

std::unique_ptr<BlockIo> thread_block_io(const BlockIoSetup& setup, std::string why_threads);

}  // namespace strata
