// Only one thread uses the ring, and the kernel knows this: it then processes completions when that
// thread waits and interrupts no other thread. wake() completes a read of an eventfd that is always
// in flight in the same ring, so that one system call waits for both.
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/disk/block_io.h"

namespace strata {
namespace {

constexpr std::uint64_t kWakeTag = ~std::uint64_t{0};
constexpr std::size_t kLongestBuffer = std::size_t{1} << 30;  // the kernel registers no longer one

bool has_operations(io_uring& ring) {
  io_uring_probe* probe = ::io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return false;
  bool all = true;
  for (const int operation : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED,
                              IORING_OP_WRITE_FIXED, IORING_OP_FSYNC})
    all = all && ::io_uring_opcode_supported(probe, operation) != 0;
  ::io_uring_free_probe(probe);
  return all;
}

// Returns 0 or -errno. Kernels before 6.1 don't know all flags; without them only speed is lost.
int set_up(unsigned entries, io_uring& ring) {
  int result = -EINVAL;
  for (const unsigned flags : {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0u}) {
    io_uring_params parameters{};
    parameters.flags = flags;
    result = ::io_uring_queue_init_params(entries, &ring, &parameters);
    if (result != -EINVAL) break;
  }
  return result;
}

std::string lock_limit_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return ", ulimit -l allows " + format_bytes(static_cast<std::int64_t>(limit.rlim_cur));
}

class UringBlockIo final : public BlockIo {
 public:
  UringBlockIo(const io_uring& ring, int event, const BlockIoSetup& setup)
      : ring_(ring), event_(event), descriptor_(setup.descriptor) {
    probe_.backend = DiskBackend::kIoUring;
    probe_.registered_file = ::io_uring_register_files(&ring_, &setup.descriptor, 1) == 0;
    register_buffers(setup.buffers);
    read_event();
  }

  // Requests in flight end before their memory is freed.
  ~UringBlockIo() override {
    std::vector<BlockResult> ended;
    try {
      while (under_way_ > 0) wait(ended);
    } catch (const Error&) {  // the ring is broken: no more results can be read
    }
    ::io_uring_queue_exit(&ring_);
    ::close(event_);
  }

  void submit(const BlockRequest& request) override {
    io_uring_sqe* entry = new_entry();
    const auto count = static_cast<unsigned>(request.bytes.size());
    const int file = probe_.registered_file ? 0 : descriptor_;
    const int buffer = buffer_of(request.bytes);
    std::byte* const bytes = request.bytes.data();
    if (request.op == BlockOp::kSync) {
      ::io_uring_prep_fsync(entry, file, IORING_FSYNC_DATASYNC);
    } else if (request.op == BlockOp::kRead && buffer >= 0) {
      ::io_uring_prep_read_fixed(entry, file, bytes, count, request.offset, buffer);
    } else if (request.op == BlockOp::kRead) {
      ::io_uring_prep_read(entry, file, bytes, count, request.offset);
    } else if (buffer >= 0) {
      ::io_uring_prep_write_fixed(entry, file, bytes, count, request.offset, buffer);
    } else {
      ::io_uring_prep_write(entry, file, bytes, count, request.offset);
    }
    if (probe_.registered_file) entry->flags |= IOSQE_FIXED_FILE;
    ::io_uring_sqe_set_data64(entry, static_cast<std::uint64_t>(request.slot));
    ++under_way_;
    ::io_uring_submit(&ring_);  // wait() submits again what the kernel doesn't accept now
  }

  void wait(std::vector<BlockResult>& results) override {
    while (!collect(results)) {
      const int result = ::io_uring_submit_and_wait(&ring_, 1);
      if (result >= 0 || result == -EINTR) continue;
      if (result != -EAGAIN && result != -EBUSY)
        throw_error(file_error("disk.wait", "io_uring", "the ring cannot be used", -result));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the kernel is short of memory
    }
  }

  void wake() override {
    const std::uint64_t one = 1;
    while (::write(event_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  const BlockIoProbe& probe() const override { return probe_; }

 private:
  io_uring_sqe* new_entry() {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    STRATA_CHECK(entry != nullptr, "disk.submit");  // there is one for each slot and the event
    return entry;
  }

  void read_event() {
    io_uring_sqe* entry = new_entry();
    ::io_uring_prep_read(entry, event_, &event_value_, sizeof event_value_, 0);
    ::io_uring_sqe_set_data64(entry, kWakeTag);
  }

  // Returns whether there was a result or the event.
  bool collect(std::vector<BlockResult>& results) {
    bool any = false;
    io_uring_cqe* done = nullptr;
    while (::io_uring_peek_cqe(&ring_, &done) == 0) {
      any = true;
      const std::uint64_t tag = ::io_uring_cqe_get_data64(done);
      const std::int64_t result = done->res;
      ::io_uring_cqe_seen(&ring_, done);
      if (tag == kWakeTag) {
        read_event();
        continue;
      }
      --under_way_;
      results.push_back({.slot = static_cast<int>(tag), .result = result});
    }
    return any;
  }

  void register_buffers(const std::vector<std::span<std::byte>>& buffers) {
    std::vector<iovec> parts;
    for (std::span<std::byte> rest : buffers) {
      while (!rest.empty()) {
        const std::size_t count = std::min(rest.size(), kLongestBuffer);
        parts.push_back({.iov_base = rest.data(), .iov_len = count});
        rest = rest.subspan(count);
      }
    }
    if (parts.empty()) return;
    const int result =
        ::io_uring_register_buffers(&ring_, parts.data(), static_cast<unsigned>(parts.size()));
    if (result != 0) {
      probe_.why_unregistered = std::strerror(-result) + lock_limit_text();
      return;
    }
    probe_.registered_buffers = true;
    for (const iovec& part : parts)
      registered_.emplace_back(static_cast<std::byte*>(part.iov_base), part.iov_len);
  }

  // Returns the registered buffer that contains these bytes; -1: none.
  int buffer_of(std::span<const std::byte> bytes) const {
    for (std::size_t i = 0; i < registered_.size(); ++i) {
      const std::span<const std::byte> buffer = registered_[i];
      if (!bytes.empty() && bytes.data() >= buffer.data() &&
          bytes.data() + bytes.size() <= buffer.data() + buffer.size())
        return static_cast<int>(i);
    }
    return -1;
  }

  io_uring ring_;
  int event_;
  int descriptor_;
  std::uint64_t event_value_ = 0;
  int under_way_ = 0;
  std::vector<std::span<std::byte>> registered_;
  BlockIoProbe probe_;
};

}  // namespace

std::unique_ptr<BlockIo> uring_block_io(const BlockIoSetup& setup, std::string& refusal) {
  io_uring ring{};
  const int result = set_up(static_cast<unsigned>(setup.depth) + 1, ring);
  if (result != 0) {
    refusal = "io_uring_setup: " + std::string(std::strerror(-result));
    return nullptr;
  }
  const int event = ::eventfd(0, EFD_CLOEXEC);
  if (event < 0 || !has_operations(ring)) {
    refusal = event < 0 ? "eventfd: " + std::string(std::strerror(errno))
                        : "this kernel's io_uring lacks operations";
    if (event >= 0) ::close(event);
    ::io_uring_queue_exit(&ring);
    return nullptr;
  }
  return std::make_unique<UringBlockIo>(ring, event, setup);
}

}  // namespace strata
