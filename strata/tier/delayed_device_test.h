/// Emulates an asynchronous device for tests. Its memory is freed in the order of its compute
/// stream: a copy or a use that is too early reads NaN or another layer's numbers.
#pragma once

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "strata/device/account.h"
#include "strata/device/delayed_stream_test.h"
#include "strata/tier/host_backend.h"

namespace strata {

/// While it lives, libtorch allocates memory of a queue's device. There is one at a time; tensors
/// may outlive it.
class DelayedMemory {
 public:
  explicit DelayedMemory(DelayedQueue& queue) { allocator().queue = &queue; }
  ~DelayedMemory() { allocator().queue = nullptr; }
  DelayedMemory(const DelayedMemory&) = delete;
  DelayedMemory& operator=(const DelayedMemory&) = delete;

  /// The last allocation; it may be read after it was freed.
  static const void* last() { return allocator().last; }

 private:
  struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) override {
      DelayedQueue* const device = queue;
      if (!device) return below->allocate(bytes);
      auto held = std::make_unique<at::Tensor>(
          device->empty({static_cast<std::int64_t>(bytes)}, at::kByte));
      void* const begin = held->mutable_data_ptr();
      last = begin;
      return {begin, held.release(), &free, c10::Device(c10::DeviceType::CPU)};
    }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
      std::memcpy(to, from, bytes);
    }
    static void free(void* held) { delete static_cast<at::Tensor*>(held); }

    c10::DeleterFnPtr raw_deleter() const override { return below->raw_deleter(); }

    c10::Allocator* below = c10::GetCPUAllocator();
    std::atomic<DelayedQueue*> queue = nullptr;  // ranks allocate at the same time
    std::atomic<void*> last = nullptr;
  };
  // Never freed: tensors refer to it.
  static Allocator& allocator() {
    install_accounting_allocator();  // a later allocator replaces it
    static auto& made = *new Allocator;
    static const bool installed = [] {
      c10::SetCPUAllocator(&made, /*priority=*/110);
      return true;
    }();
    (void)installed;
    return made;
  }
};

/// The queues of one device, and its memory.
struct DelayedDevice {
  explicit DelayedDevice(std::uint64_t seed = 0)
      : compute(std::make_shared<DelayedQueue>(seed)),
        in(std::make_shared<DelayedQueue>(seed + 1)),
        out(std::make_shared<DelayedQueue>(seed + 2)),
        streams(Stream({}, compute), Stream({}, in), Stream({}, out)),
        memory(*compute) {}
  ~DelayedDevice() { compute->synchronize(); }

  /// Enqueues a kernel that writes `value` to every element.
  void fill(const at::Tensor& x, float value) const {
    compute->give([begin = x.data_ptr<float>(), numel = x.numel(), value] {
      std::fill_n(begin, numel, value);
    });
  }
  /// Enqueues a kernel that writes the sum of all elements to `sum`.
  void add_up(const at::Tensor& x, double& sum) const {
    compute->give([begin = x.const_data_ptr<float>(), numel = x.numel(), &sum] {
      double all = 0;
      for (std::int64_t i = 0; i < numel; ++i) all += begin[i];
      sum = all;
    });
  }
  /// Work that does not wait has ended after this.
  static void let_others_run() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

  std::shared_ptr<DelayedQueue> compute, in, out;
  CopyStreams streams;
  DelayedMemory memory;
};

}  // namespace strata
