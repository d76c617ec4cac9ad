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
#include "tests/emulated_gpu/work.h"

namespace strata::emulated {

// Free blocks by size: offset, bytes.
class Pool {
 public:
  ~Pool();
  std::map<std::size_t, std::size_t> free;
};

namespace {

constexpr std::size_t kBlock = 4096;  // a page, so that large blocks can be unmapped
constexpr std::size_t kLarge = 1 << 20;
constexpr int kPoison = 0xFF;  // NaNs, and large integers

thread_local Pool* this_pool = nullptr;
thread_local int this_device = 0;
thread_local int work_depth = 0;

// One arena for all devices, so that an address identifies its device.
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

  int device_of(const void* address) const {
    return static_cast<int>((static_cast<const std::byte*>(address) - begin_) / kDeviceBytes);
  }

  void open() {
    work_.lock();
    if (work_depth++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    if (--work_depth == 0) protect(PROT_NONE);
    work_.unlock();
  }

  void* allocate(int device, std::size_t requested) {
    const std::size_t size = std::max<std::size_t>(1, (requested + kBlock - 1) / kBlock) * kBlock;
    const std::lock_guard lock(mutex_);
    Device& of = devices_.at(device);
    if (Pool* pool = this_pool) {
      const auto kept = std::find_if(pool->free.begin(), pool->free.end(),
                                     [&](const auto& hole) { return hole.second == size; });
      if (kept != pool->free.end()) {
        const std::size_t offset = kept->first;
        pool->free.erase(kept);
        return take(offset, {device, size, requested, pool});
      }
    }
    const auto room = std::find_if(of.free.begin(), of.free.end(),
                                   [&](const auto& hole) { return hole.second >= size; });
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        room != of.free.end() && of.allocated + static_cast<std::int64_t>(requested) <= of.limit,
        "CUDA out of memory (emulated)");
    const auto [offset, hole] = *room;
    of.free.erase(room);
    if (hole > size) of.free.emplace(offset + size, hole - size);
    return take(offset, {device, size, requested, this_pool});
  }

  /// The size of the block, if it is reusable after its release.
  std::size_t bytes_of(const void* address) {
    const std::lock_guard lock(mutex_);
    const Block& block = block_at(address)->second;
    return block.pool ? 0 : block.size;
  }

  void release(void* address) {
    const std::lock_guard lock(mutex_);
    const auto block = block_at(address);
    const std::size_t offset = block->first;
    const Block freed = block->second;
    blocks_.erase(block);
    devices_.at(freed.device).allocated -= static_cast<std::int64_t>(freed.requested);
    if (trace.freed) trace.freed(address);
    if (freed.pool) {
      freed.pool->free.emplace(offset, freed.size);
    } else {
      give_back(devices_.at(freed.device), offset, freed.size);
    }
  }

  // The recording is destroyed: its free blocks become available, the others when they are freed.
  void dissolve(Pool* pool) {
    const std::lock_guard lock(mutex_);
    for (auto& [offset, block] : blocks_)
      if (block.pool == pool) block.pool = nullptr;
    for (const auto& [offset, size] : pool->free)
      give_back(devices_.at(offset / kDeviceBytes), offset, size);
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
    std::size_t size, requested;
    Pool* pool;  // null: no recording's
  };

  std::map<std::size_t, Block>::iterator block_at(const void* address) {
    const auto block = blocks_.find(static_cast<const std::byte*>(address) - begin_);
    STRATA_CHECK(block != blocks_.end(), "emulated.release");
    return block;
  }

  void* take(std::size_t offset, Block block) {
    blocks_.emplace(offset, block);
    devices_.at(block.device).allocated += static_cast<std::int64_t>(block.requested);
    void* address = begin_ + offset;
    if (trace.allocated) trace.allocated(address, static_cast<std::int64_t>(block.requested));
    return address;
  }

  static void give_back(Device& of, std::size_t offset, std::size_t size) {
    // Joins adjacent free blocks.
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

  std::size_t bytes() const { return devices_.size() * static_cast<std::size_t>(kDeviceBytes); }
  void protect(int how) { STRATA_CHECK(::mprotect(begin_, bytes(), how) == 0, "emulated.protect"); }

  std::byte* begin_ = nullptr;
  std::recursive_mutex work_;
  std::mutex mutex_;
  std::vector<Device> devices_;
  std::map<std::size_t, Block> blocks_;
};

// Never freed, because static tensors outlive it.
Arena& arena() {
  static auto& all = *new Arena;
  return all;
}

}  // namespace

Pool::~Pool() { arena().dissolve(this); }
std::shared_ptr<Pool> begin_pool() {
  auto pool = std::make_shared<Pool>();
  this_pool = pool.get();
  return pool;
}
void end_pool() { this_pool = nullptr; }

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
  give([=] { std::memset(address, kPoison, bytes); });
  return address;
}
// Mapped pages make every protection change slower. They are unmapped before the block can be
// reused, because unmapping later would lose the next owner's data.
void release(void* address) {
  const std::size_t bytes = arena().bytes_of(address);
  if (bytes >= kLarge && !is_recording())
    give_to(arena().device_of(address), [=] { ::madvise(address, bytes, MADV_DONTNEED); });
  arena().release(address);
}
std::int64_t allocated_bytes(int device) { return arena().allocated(device); }
void limit_bytes(int device, std::int64_t bytes) { arena().limit(device, bytes); }
void set_trace(Trace trace) { arena().trace = std::move(trace); }

}  // namespace strata::emulated
