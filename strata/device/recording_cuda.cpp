// A capture takes what the calling thread gives to its current stream and does none of it, so the first
// replay is part of recording. Each recording has a pool of its own: addresses are then nobody else's, at the
// price that two recordings of one step don't share what they need in turn. What performed steps have left in the
// allocator's cache is given back first: a pool may not use it, and while it is filled nothing is given back, so that
// a step would need its memory twice.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "strata/device/recording.h"

namespace strata {
namespace {

class CudaRecording final : public Recording {
 public:
  void record(std::function<void()> work) override {
    c10::cuda::CUDACachingAllocator::emptyCache();
    // Of this thread alone: others may allocate and copy meanwhile.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_of_failed_capture();
      throw;
    }
    graph_.capture_end();
    graph_.replay();
  }

  void replay() override { graph_.replay(); }

 private:
  // The stream must leave its capture; the graph is of no use.
  void end_of_failed_capture() noexcept {
    try {
      graph_.capture_end();
    } catch (...) {  // says that the capture has failed, which the first error has said better
    }
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<Recording> make_cuda_recording() { return std::make_unique<CudaRecording>(); }

}  // namespace strata
