// A capture takes what the calling thread gives to its current stream and does none of it, so the first
// replay is part of recording. Each recording has a pool of its own: addresses are then nobody else's, at the
// price that two recordings of one step don't share what they need in turn. What performed steps have left in the
// allocator's cache is given back first: a pool may not use it, and while it is filled nothing is given back, so that
// a step would need its memory twice.
//
// libtorch leaves the allocator in the middle of a capture that the driver refuses to end: the rest of the run would
// then give nothing back. So the pool is named here, and ended by us.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include "strata/device/recording.h"

namespace strata {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// False: it failed, of which the first error has said more.
bool succeeds(const std::function<void()>& end) noexcept {
  try {
    end();
    return true;
  } catch (...) {
    (void)cudaGetLastError();
    return false;
  }
}

class CudaRecording final : public Recording {
 public:
  void record(std::function<void()> work) override {
    allocator::emptyCache();
    const c10::DeviceIndex device = c10::cuda::current_device();
    const c10::MempoolId_t pool = at::cuda::graph_pool_handle();
    // Of this thread alone: others may allocate and copy meanwhile.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
      graph_.capture_end();
    } catch (...) {
      end_failed_capture(device, pool);
      throw;
    }
    graph_.replay();
  }

  void replay() override { graph_.replay(); }

 private:
  // The stream must leave its capture, whatever of it is valid. A graph that has ended gives its pool back itself.
  void end_failed_capture(c10::DeviceIndex device, c10::MempoolId_t pool) noexcept {
    if (succeeds([&] { graph_.capture_end(); }) || succeeds([&] { (void)graph_.pool(); })) return;
    succeeds([&] { allocator::endAllocateToPool(device, pool); });
    succeeds([&] { allocator::releasePool(device, pool); });
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<Recording> make_cuda_recording() { return std::make_unique<CudaRecording>(); }

}  // namespace strata
