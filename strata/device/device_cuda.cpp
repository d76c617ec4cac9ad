// CUDA's devices, streams and events. Streams are created here and passed to libtorch as external
// ones: libtorch's own come from a pool of 32 that it reuses, so that two streams could be the
// same, and the default stream can't be recorded. They do not wait for the default stream; streams
// of ranks live as long as the process.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <cuda_runtime_api.h>

#include <mutex>
#include <optional>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/device/device.h"

// The header of NCCL's wrapper needs those of cuBLAS, cuSOLVER and cuSPARSE, which only a whole
// toolkit has.
namespace torch::cuda::nccl {
std::uint64_t version();
}

namespace strata {
namespace {

c10::DeviceIndex device_index(int index) { return static_cast<c10::DeviceIndex>(index); }

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(int index, cudaStream_t stream, EventTime time) : index_(index), time_(time) {
    const c10::cuda::CUDAGuard guard(device_index(index));
    C10_CUDA_CHECK(cudaEventCreateWithFlags(
        &event_, time == EventTime::kKnown ? cudaEventDefault : cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(event_, stream));
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  // The driver may be gone when a static event is destroyed.
  ~CudaEvent() override { C10_CUDA_IGNORE_ERROR(cudaEventDestroy(event_)); }

  bool ready() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaSuccess) return true;
    if (state != cudaErrorNotReady) C10_CUDA_CHECK(state);
    (void)cudaGetLastError();  // clears the stored "not ready" error
    return false;
  }
  void wait() const override { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
  double seconds_since(const DeviceEvent& earlier) const override {
    const auto* other = dynamic_cast<const CudaEvent*>(&earlier);
    if (!other || time_ == EventTime::kUnknown || other->time_ == EventTime::kUnknown)
      return DeviceEvent::seconds_since(earlier);
    STRATA_CHECK_EQ(index_, other->index_, "device.seconds_between");
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, other->event_, event_));
    return 1e-3 * milliseconds;
  }

  const DeviceEvent* on_device() const override { return this; }
  cudaEvent_t native() const { return event_; }

 private:
  int index_;
  EventTime time_;
  cudaEvent_t event_ = nullptr;
};

class CudaQueue final : public StreamQueue {
 public:
  explicit CudaQueue(int index) : index_(index) {
    const c10::cuda::CUDAGuard guard(device_index(index));
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;
  // Submitted work still runs.
  ~CudaQueue() override { C10_CUDA_IGNORE_ERROR(cudaStreamDestroy(stream_)); }

  Completion record(EventTime time) override {
    return Completion(std::make_shared<CudaEvent>(index_, stream_, time));
  }
  void wait(const Completion& event) override {
    if (const auto* cuda = dynamic_cast<const CudaEvent*>(on_device(event))) {
      C10_CUDA_CHECK(cudaStreamWaitEvent(stream_, cuda->native(), 0));
    } else {
      event.wait();  // the host does that work: submit nothing before it has ended
    }
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    const c10::cuda::CUDAGuard guard(device_index(index_));
    // Unified addressing finds the side of each address.
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  }
  bool recording() const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream_, &status));
    return status != cudaStreamCaptureStatusNone;
  }
  void synchronize() override { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  void* native() override { return stream_; }

 private:
  int index_;
  cudaStream_t stream_ = nullptr;
};

class CudaBinding final : public DeviceBinding {
 public:
  CudaBinding(int index, void* stream) : guard_(device_index(index)), index_(device_index(index)) {
    previous_ = c10::cuda::getCurrentCUDAStream(index_);
    c10::cuda::setCurrentCUDAStream(
        c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), index_));
  }
  CudaBinding(const CudaBinding&) = delete;
  CudaBinding& operator=(const CudaBinding&) = delete;
  ~CudaBinding() override { c10::cuda::setCurrentCUDAStream(*previous_); }

 private:
  c10::cuda::CUDAGuard guard_;
  c10::DeviceIndex index_;
  std::optional<c10::cuda::CUDAStream> previous_;
};

class CudaBackend final : public DeviceBackend {
 public:
  int count() const override { return c10::cuda::device_count(); }

  std::string why_none() const override {
    if (count() > 0) return "";
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    (void)cudaGetLastError();
    return error == cudaSuccess ? "no CUDA device"
                                : std::string("no CUDA device: ") + cudaGetErrorString(error);
  }

  void require(int index) const override {
    if (count() > 0) return DeviceBackend::require(index);
    throw UserError({.operation = "device.cuda",
                     .what = "this machine has no CUDA device",
                     .expected = "cpu",
                     .got = "cuda (" + why_none() + ")",
                     .fix = "set mesh.device=cpu, or look at nvidia-smi"});
  }

  DeviceFacts facts(int index) const override {
    require(index);
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    DeviceFacts facts{
        .name = properties.name,
        .bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
        .multiprocessors = properties.multiProcessorCount,
        .capability = std::to_string(properties.major) + "." + std::to_string(properties.minor)};
    for (int peer = 0; peer < count(); ++peer) {
      int can = 0;
      if (peer != index) C10_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, index, peer));
      if (can) facts.peers.push_back(peer);
    }
    return facts;
  }

  // Excludes memory that libtorch's allocator caches: others cannot use it.
  std::int64_t free_bytes(int index) const override {
    require(index);
    const c10::cuda::CUDAGuard guard(device_index(index));
    std::size_t free = 0, all = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &all));
    return static_cast<std::int64_t>(free);
  }

  std::string nccl_version() const override {
    const std::uint64_t version = torch::cuda::nccl::version();  // 16 bits each
    return std::to_string(version >> 32) + "." + std::to_string(version >> 16 & 0xffff) + "." +
           std::to_string(version & 0xffff);
  }

  std::shared_ptr<StreamQueue> make_queue(int index) const override {
    require(index);
    return std::make_shared<CudaQueue>(index);
  }

  std::shared_ptr<StreamQueue> compute_queue(int index) const override {
    require(index);
    // Never freed: static tensors may outlive all other users of the stream.
    static std::mutex mutex;
    static auto& queues =
        *new std::vector<std::shared_ptr<StreamQueue>>(static_cast<std::size_t>(count()));
    const std::lock_guard lock(mutex);
    if (!queues[index]) queues[index] = std::make_shared<CudaQueue>(index);
    return queues[index];
  }

  std::unique_ptr<DeviceBinding> bind(int index) const override {
    return std::make_unique<CudaBinding>(index, compute_queue(index)->native());
  }

  bool enable_peer_access(int index, int peer) const override {
    if (index == peer) return true;
    // libtorch's allocator also maps its later allocations for the peer.
    return c10::cuda::get_p2p_access(device_index(index), device_index(peer));
  }

  void register_host_memory(void* begin, std::size_t bytes) const override {
    const cudaError_t error = cudaHostRegister(begin, bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) return;
    (void)cudaGetLastError();
    throw SystemError({.operation = "device.pinned",
                       .what = "host memory for copies to and from the GPU cannot be locked",
                       .expected = format_bytes(static_cast<std::int64_t>(bytes)),
                       .got = cudaGetErrorString(error),
                       .fix = "set memory.host to less, or raise the limit (ulimit -l)"});
  }

  void unregister_host_memory(void* begin) const override {
    C10_CUDA_IGNORE_ERROR(cudaHostUnregister(begin));
  }
};

}  // namespace

const DeviceBackend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace strata
