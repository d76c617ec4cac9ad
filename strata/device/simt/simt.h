/// Runs kernels of many threads, written once, on two machines: nvcc compiles them for a GPU, and
/// any C++ compiler as loops on the host, where tests compare each with the host's own kernel, bit
/// for bit.
///
/// A kernel is a struct of its arguments with a number of threads and a body for one block of them:
///
///     struct Scale {
///       static constexpr int kThreads = 256;
///       struct Shared { float top[kThreads]; };     // optional: what the block's threads share
///       const float* x; float* y; std::int64_t columns;
///
///       STRATA_DEVICE void operator()(Block<kThreads>& block, Shared& shared) const {
///         const float* row = x + block.index() * columns;
///         auto most = block.per_thread(0.0f);       // a register per thread, kept between phases
///         block.each([&](int thread) {              // a phase: every thread, then all wait
///           for (std::int64_t c = thread; c < columns; c += kThreads) most[thread] += row[c];
///         });
///         const float sum = block.sum(most);        // in a fixed order; every thread gets it
///         ...
///     launch(Scale{.x = x, .y = y, .columns = columns}, rows, stream);   // one block a row
///
/// Between phases the threads of a block wait for each other, so a phase may read what other
/// threads wrote to `shared` in earlier phases, never in its own. Every thread executes the code
/// between phases (the host executes it once), so that code may use only values that all threads
/// share and memory that no thread writes. Blocks are independent. A block of 32 threads is one
/// warp: it synchronises by __syncwarp, reduces only by shuffles, and four of them share a CUDA
/// block.
///
/// On the host the threads of a phase and the blocks run one after another, in either order
/// (HostOrder), and shared memory begins as NaNs, so that a dependence on order or a missing phase
/// shows.
///
/// Both machines compute the same bits: no contraction (-fmad=false, -ffp-contract=off), fma() only
/// if written, IEEE division and roots; reductions add in the order of the tree below.
///
/// Threads  launch() enqueues on the stream; on the host it returns when the kernel has ended.
/// Errors   InternalError: the device refused the launch.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "strata/base/errors.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define STRATA_DEVICE __device__ __forceinline__
#define STRATA_HOST_DEVICE __host__ __device__ inline
#define STRATA_UNROLL _Pragma("unroll")
#define STRATA_UNROLL_4 _Pragma("unroll 4")
#else
#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>
#define STRATA_DEVICE inline
#define STRATA_HOST_DEVICE inline
#define STRATA_UNROLL
#define STRATA_UNROLL_4
#endif

namespace strata::simt {

inline constexpr int kWarp = 32;  // threads

struct NothingShared {};

template <typename Kernel, typename = void>
struct SharedOf {
  using Type = NothingShared;
};
template <typename Kernel>
struct SharedOf<Kernel, std::void_t<typename Kernel::Shared>> {
  using Type = typename Kernel::Shared;
};

struct Sum {
  template <typename T>
  STRATA_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};

/// a * b + c, rounded once.
STRATA_DEVICE float fma(float a, float b, float c) {
#ifdef __CUDACC__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}
STRATA_DEVICE double fma(double a, double b, double c) {
#ifdef __CUDACC__
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

template <typename To, typename From>
STRATA_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

/// Adds values[j] and values[j + half] for j in the first half, recursively: the order of a tree.
template <typename T, int kCount>
STRATA_DEVICE T tree_sum(const T (&values)[kCount]) {
  if constexpr (kCount == 1) {
    return values[0];
  } else {
    T sums[kCount / 2];
    STRATA_UNROLL
    for (int j = 0; j < kCount / 2; ++j) sums[j] = values[j] + values[j + kCount / 2];
    return tree_sum(sums);
  }
}

STRATA_DEVICE std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

#ifdef __CUDACC__

// ---- On a GPU

template <typename T>
struct PerThread {
  T value;
  __device__ __forceinline__ T& operator[](int) { return value; }
  __device__ __forceinline__ const T& operator[](int) const { return value; }
};

template <int kThreads>
class Block {
 public:
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr int kLargest = 16;  // bytes of a reduced value
  // Two buffers in turn: the next reduction writes one while slow threads still read the other.
  struct Partials {
    alignas(kLargest) unsigned char bytes[2][kWarps * kLargest];
  };

  __device__ __forceinline__ Block(std::int64_t index, int thread, Partials& partials)
      : index_(index), thread_(thread), partials_(partials) {}

  __device__ __forceinline__ std::int64_t index() const { return index_; }

  template <typename T>
  __device__ __forceinline__ PerThread<T> per_thread(T initial) const {
    return {initial};
  }

  template <typename Phase>
  __device__ __forceinline__ void each(Phase phase) {
    if (begun_) wait();
    begun_ = true;
    phase(thread_);
  }

  template <typename T, typename Combine>
  __device__ __forceinline__ T reduce(const PerThread<T>& values, Combine combine) {
    static_assert(sizeof(T) <= kLargest && sizeof(T) % 4 == 0);
    T total = across<kWarp>(values.value, combine);
    if constexpr (kWarps > 1) {
      T* partial = reinterpret_cast<T*>(partials_.bytes[half_]);
      if (thread_ % kWarp == 0) partial[thread_ / kWarp] = total;
      __syncthreads();
      total = across<kWarps>(partial[thread_ % kWarps], combine);
      half_ ^= 1;
    }
    return total;
  }

  template <typename T>
  __device__ __forceinline__ T sum(const PerThread<T>& values) {
    return reduce(values, Sum());
  }

 private:
  __device__ __forceinline__ void wait() const {
    if constexpr (kWarps > 1) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

  // All threads of the warp get the same bits: a + b equals b + a.
  template <int kLanes, typename T, typename Combine>
  __device__ __forceinline__ static T across(T value, Combine combine) {
    STRATA_UNROLL
    for (int width = kLanes / 2; width > 0; width /= 2)
      value = combine(value, of_lane_across(value, width));
    return value;
  }

  template <typename T>
  __device__ __forceinline__ static T of_lane_across(const T& value, int width) {
    constexpr int kWords = sizeof(T) / 4;
    std::uint32_t words[kWords];
    memcpy(words, &value, sizeof(T));
    STRATA_UNROLL
    for (int word = 0; word < kWords; ++word)
      words[word] = __shfl_xor_sync(0xFFFFFFFFu, words[word], width);
    T other;
    memcpy(&other, words, sizeof(T));
    return other;
  }

  std::int64_t index_;
  int thread_;
  Partials& partials_;
  bool begun_ = false;  // both fold away: the body is straight-line code or a loop of it
  int half_ = 0;
};

/// Blocks of one warp share a CUDA block, because a multiprocessor holds only 32 blocks.
template <int kThreads>
inline constexpr int kBlocksTogether = kThreads == kWarp ? 4 : 1;

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads* kBlocksTogether<Kernel::kThreads>)
    run(const Kernel kernel, std::int64_t blocks) {
  constexpr int kThreads = Kernel::kThreads, kTogether = kBlocksTogether<kThreads>;
  using Shared = typename SharedOf<Kernel>::Type;
  __shared__ typename Block<kThreads>::Partials partials[kTogether];
  const int place = threadIdx.x / kThreads;
  const std::int64_t index = std::int64_t{blockIdx.x} * kTogether + place;
  if (kTogether > 1 && index >= blocks) return;
  Block<kThreads> block(index, threadIdx.x % kThreads, partials[place]);
  if constexpr (std::is_same_v<Shared, NothingShared>) {
    kernel(block);
  } else {
    __shared__ Shared shared[kTogether];
    kernel(block, shared[place]);
  }
}

template <typename Kernel>
void launch(const Kernel& kernel, std::int64_t blocks, void* stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (blocks == 0) return;
  constexpr int kThreads = Kernel::kThreads, kTogether = kBlocksTogether<kThreads>;
  const std::int64_t grid = (blocks + kTogether - 1) / kTogether;
  STRATA_CHECK(grid > 0 && grid <= INT32_MAX, "device.launch");
  run<<<static_cast<unsigned>(grid), kThreads * kTogether, 0, static_cast<cudaStream_t>(stream)>>>(
      kernel, blocks);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    throw InternalError({.operation = "device.launch",
                         .what = "the device refused a kernel",
                         .got = cudaGetErrorString(error)});
}

#else

// ---- On the host

enum class HostOrder : std::uint8_t { kAscending, kDescending };

/// The order of blocks and of threads in a phase; tests compare both.
inline HostOrder host_order = HostOrder::kAscending;

/// Calls f(0 ... n - 1) in that order.
template <typename F>
void in_host_order(std::int64_t n, F f) {
  for (std::int64_t i = 0; i < n; ++i) f(host_order == HostOrder::kAscending ? i : n - 1 - i);
}

/// The receiver of launches on the host; null: the kernel runs at once. An emulated device runs it
/// in the order of a stream (tests/emulated_gpu).
inline void (*host_device_launch)(std::function<void()> launch) = nullptr;

template <typename Launch>
void on_host_device(Launch launch) {
  host_device_launch ? host_device_launch(std::move(launch)) : launch();
}

template <typename T, int kThreads>
class PerThread {
 public:
  explicit PerThread(const T& initial) : values_(kThreads, Value{initial}) {}
  T& operator[](int thread) { return values_[thread].value; }
  const T& operator[](int thread) const { return values_[thread].value; }

 private:
  struct Value {  // because a vector of bool has no addressable elements
    T value;
  };
  std::vector<Value> values_;
};

template <int kThreads>
class Block {
 public:
  static constexpr int kWarps = kThreads / kWarp;

  explicit Block(std::int64_t index) : index_(index) {}
  std::int64_t index() const { return index_; }

  template <typename T>
  PerThread<T, kThreads> per_thread(T initial) const {
    return PerThread<T, kThreads>(initial);
  }

  template <typename Phase>
  void each(Phase phase) {
    in_host_order(kThreads, [&](std::int64_t thread) { phase(static_cast<int>(thread)); });
  }

  /// The tree: in a warp thread l adds the value of l + 16, then l + 8, 4, 2, 1; then the warps
  /// alike.
  template <typename T, typename Combine>
  T reduce(const PerThread<T, kThreads>& values, Combine combine) {
    std::array<T, kWarps> partial;
    for (int warp = 0; warp < kWarps; ++warp) {
      std::array<T, kWarp> lanes;
      for (int lane = 0; lane < kWarp; ++lane) lanes[lane] = values[warp * kWarp + lane];
      partial[warp] = across(lanes, combine);
    }
    return across(partial, combine);
  }

  template <typename T>
  T sum(const PerThread<T, kThreads>& values) {
    return reduce(values, Sum());
  }

 private:
  template <typename T, std::size_t kLanes, typename Combine>
  static T across(std::array<T, kLanes>& lanes, Combine combine) {
    for (std::size_t width = kLanes / 2; width > 0; width /= 2)
      for (std::size_t lane = 0; lane < width; ++lane)
        lanes[lane] = combine(lanes[lane], lanes[lane + width]);
    return lanes[0];
  }

  std::int64_t index_;
};

template <typename Kernel>
void launch(const Kernel& kernel, std::int64_t blocks, void* /*stream*/) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  constexpr int kThreads = Kernel::kThreads;
  static_assert(kThreads >= kWarp && kThreads <= 1024 && (kThreads & (kThreads - 1)) == 0);
  STRATA_CHECK(blocks >= 0, "device.launch");
  using Shared = typename SharedOf<Kernel>::Type;
  on_host_device([kernel, blocks] {
    in_host_order(blocks, [&](std::int64_t index) {
      Block<kThreads> block(index);
      if constexpr (std::is_same_v<Shared, NothingShared>) {
        kernel(block);
      } else {
        static_assert(std::is_trivially_copyable_v<Shared> && sizeof(Shared) <= 48 << 10);
        std::vector<Shared> shared(1);
        std::memset(static_cast<void*>(shared.data()), 0xFF, sizeof(Shared));
        kernel(block, shared[0]);
      }
    });
  });
}

#endif

/// The number of blocks if each processes `per_block` of n.
inline std::int64_t blocks_for(std::int64_t n, std::int64_t per_block) {
  return (n + per_block - 1) / per_block;
}

}  // namespace strata::simt
