/// Stands for the memory of GPUs: the host's, that no thread can touch but while it does a device's work.
///
/// A processor that reads a device's memory by itself gets a segmentation fault here, as on a machine with a GPU.
///
/// Threads  any; the work of all devices is done one after another.
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

/// Memory of the calling thread's device is readable and writable while one lives; may be nested.
class DeviceWork {
 public:
  DeviceWork();
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
};

/// What a recording took: given out again in it, and to nobody else while it lives.
class Pool;
std::shared_ptr<Pool> begin_pool();  ///< the calling thread's allocations are its from now on
void end_pool();

void* allocate(int device, std::size_t bytes);
void release(void* address);  ///< in the order of the compute stream: the next work may use it
std::int64_t allocated_bytes(int device);
void limit_bytes(int device, std::int64_t bytes);

/// What libtorch's trace of an allocator says: a block came, a block went.
struct Trace {
  std::function<void(const void* address, std::int64_t bytes)> allocated;
  std::function<void(const void* address)> freed;
};
void set_trace(Trace trace);

}  // namespace strata::emulated
