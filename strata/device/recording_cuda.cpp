// A capture records the calling thread's work on its current stream without performing it, so
// record() ends with a first replay. Each recording has its own pool: its addresses are not reused
// by others, but two recordings of one step cannot share memory. The allocator's cache is freed
// first: a pool cannot use it, and nothing is freed during a capture, so a step would need its
// memory twice.
//
// If the driver refuses to end a capture, libtorch leaves the allocator in the middle of it, and
// the rest of the run would return no memory. So this code names the pool and ends its use itself.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include "strata/device/recording.h"

namespace strata {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// Returns false on failure; the first error has reported more.
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
    // Only this thread is captured: others may allocate and copy meanwhile.
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
  // The stream must leave its capture even if the capture is invalid. A graph that has ended
  // returns its pool itself.
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
