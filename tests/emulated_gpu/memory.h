/// Emulates the memory of GPUs with host memory that no thread can access except in a device's
/// work.
///
/// A processor that reads a device's memory gets a segmentation fault, as on a machine with a GPU.
///
/// Threads  any; the work of all devices runs one task after another.
/// Errors   c10::OutOfMemoryError, as libtorch's allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace strata::emulated {

constexpr std::int64_t kDeviceBytes = std::int64_t{1} << 30;

int device_count();    ///< STRATA_EMULATED_GPUS, or 1
int current_device();  ///< of the calling thread
void set_device(int index);

/// Memory of the calling thread's device is accessible while an object lives; objects may be
/// nested.
class DeviceWork {
 public:
  DeviceWork();
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
};

/// The blocks of a recording: reused within it, and by no other user while it lives.
class Pool;
std::shared_ptr<Pool> begin_pool();  ///< from now on the calling thread allocates in it
void end_pool();

void* allocate(int device, std::size_t bytes);
void release(void* address);  ///< in the order of the compute stream: the next work may reuse it
std::int64_t allocated_bytes(int device);
void limit_bytes(int device, std::int64_t bytes);

/// Callbacks of libtorch's allocator trace: a block was allocated or freed.
struct Trace {
  std::function<void(const void* address, std::int64_t bytes)> allocated;
  std::function<void(const void* address)> freed;
};
void set_trace(Trace trace);

}  // namespace strata::emulated
