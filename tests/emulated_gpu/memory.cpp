#include "tests/emulated_gpu/memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/simt.h"

namespace strata::emulated {
namespace {

constexpr std::size_t kBlock = 512;  // of libtorch's allocator
constexpr int kPoison = 0xFF;        // NaNs, and large integers

thread_local int this_device = 0;
thread_local int work_depth = 0;

// One for all devices, so that an address tells its device.
class Arena {
 public:
  Arena() : devices_(static_cast<std::size_t>(device_count())) {
    void* memory =
        ::mmap(nullptr, bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    STRATA_CHECK(memory != MAP_FAILED, "emulated.memory");
    begin_ = static_cast<std::byte*>(memory);
    for (std::size_t i = 0; i < devices_.size(); ++i)
      devices_[i].free.emplace(i * kDeviceBytes, kDeviceBytes);
  }

  bool holds(const void* address) const { return address >= begin_ && address < begin_ + bytes(); }

  void open() {
    work_.lock();
    if (work_depth++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    if (--work_depth == 0) protect(PROT_NONE);
    work_.unlock();
  }

  void* allocate(int device, std::size_t asked) {
    const std::size_t size = std::max<std::size_t>(1, (asked + kBlock - 1) / kBlock) * kBlock;
    const std::lock_guard lock(mutex_);
    Device& of = devices_.at(device);
    const auto room = std::find_if(of.free.begin(), of.free.end(),
                                   [&](const auto& hole) { return hole.second >= size; });
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        room != of.free.end() && of.allocated + static_cast<std::int64_t>(asked) <= of.limit,
        "CUDA out of memory (emulated)");
    const auto [offset, hole] = *room;
    of.free.erase(room);
    if (hole > size) of.free.emplace(offset + size, hole - size);
    blocks_.emplace(offset, Block{device, size, asked});
    of.allocated += static_cast<std::int64_t>(asked);
    void* address = begin_ + offset;
    if (trace.allocated) trace.allocated(address, static_cast<std::int64_t>(asked));
    return address;
  }

  void release(void* address) {
    const std::lock_guard lock(mutex_);
    std::size_t offset = static_cast<std::byte*>(address) - begin_;
    const auto block = blocks_.find(offset);
    STRATA_CHECK(block != blocks_.end(), "emulated.release");
    auto [device, size, asked] = block->second;
    blocks_.erase(block);
    Device& of = devices_.at(device);
    of.allocated -= static_cast<std::int64_t>(asked);
    if (trace.freed) trace.freed(address);
    // One hole with its neighbours.
    auto after = of.free.lower_bound(offset);
    if (after != of.free.end() && after->first == offset + size) {
      size += after->second;
      after = of.free.erase(after);
    }
    if (after != of.free.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == offset) {
        offset = before->first;
        size += before->second;
        of.free.erase(before);
      }
    }
    of.free.emplace(offset, size);
  }

  std::int64_t allocated(int device) {
    const std::lock_guard lock(mutex_);
    return devices_.at(device).allocated;
  }
  void limit(int device, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    devices_.at(device).limit = bytes;
  }

  Trace trace;

 private:
  struct Device {
    std::map<std::size_t, std::size_t> free;  // offset: bytes
    std::int64_t allocated = 0;
    std::int64_t limit = kDeviceBytes;
  };
  struct Block {
    int device;
    std::size_t size, asked;
  };

  std::size_t bytes() const { return devices_.size() * static_cast<std::size_t>(kDeviceBytes); }
  void protect(int how) { STRATA_CHECK(::mprotect(begin_, bytes(), how) == 0, "emulated.protect"); }

  std::byte* begin_ = nullptr;
  std::recursive_mutex work_;
  std::mutex mutex_;
  std::vector<Device> devices_;
  std::map<std::size_t, Block> blocks_;
};

// Never freed: static tensors outlive it.
Arena& arena() {
  static auto& all = *new Arena;
  return all;
}

[[maybe_unused]] const bool opened_by_launches =
    (simt::host_device = {.begin_launch = [] { arena().open(); },
                          .end_launch = [] { arena().close(); }},
     true);

}  // namespace

int device_count() {
  const char* count = std::getenv("STRATA_EMULATED_GPUS");
  return count ? std::atoi(count) : 1;
}
int current_device() { return this_device; }
void set_device(int index) { this_device = index; }

DeviceWork::DeviceWork() { arena().open(); }
DeviceWork::~DeviceWork() { arena().close(); }

void* allocate(int device, std::size_t bytes) {
  void* address = arena().allocate(device, bytes);
  const DeviceWork work;
  std::memset(address, kPoison, bytes);
  return address;
}
void release(void* address) { arena().release(address); }
bool is_device_memory(const void* address) { return arena().holds(address); }
std::int64_t allocated_bytes(int device) { return arena().allocated(device); }
void limit_bytes(int device, std::int64_t bytes) { arena().limit(device, bytes); }
void set_trace(Trace trace) { arena().trace = std::move(trace); }

}  // namespace strata::emulated
