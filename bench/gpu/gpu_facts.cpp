// Answers, on a GPU, what the CUDA backend takes for granted about libtorch and cuBLAS. One line a
// fact.
//
//   gpu_facts            all of them, within five minutes
//   exit 77              no CUDA device: nothing was tried
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

using at::Tensor;

const auto kGpu16 = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
const auto kGpu32 = at::TensorOptions().device(at::kCUDA).dtype(at::kFloat);

void cuda(cudaError_t error) { TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

// Median seconds of f by events, after three warm-ups.
double seconds(const std::function<void()>& f, int runs = 20) {
  for (int i = 0; i < 3; ++i) f();
  cudaEvent_t begin, end;
  cuda(cudaEventCreate(&begin));
  cuda(cudaEventCreate(&end));
  std::vector<double> times;
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  for (int i = 0; i < runs; ++i) {
    cuda(cudaEventRecord(begin, stream));
    f();
    cuda(cudaEventRecord(end, stream));
    cuda(cudaEventSynchronize(end));
    float ms = 0;
    cuda(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms / 1e3);
  }
  cuda(cudaEventDestroy(begin));
  cuda(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double host_seconds(const std::function<void()>& f) {
  c10::cuda::device_synchronize();
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool same(const Tensor& a, const Tensor& b) { return at::equal(a, b); }

// sum += dy^T x, inside the product where libtorch does that.
void add_weight_gradient(Tensor& sum, const Tensor& dy, const Tensor& x) {
  static bool inside = true;
  if (inside) try {
      at::addmm_out(sum, sum, dy.t(), x, at::kFloat, /*beta=*/1, /*alpha=*/1);
      return;
    } catch (const c10::Error&) {
      inside = false;
    }
  sum.add_(at::mm(dy.t(), x, at::kFloat));
}
const char* yes(bool value) { return value ? "same" : "DIFFER"; }
void line(const char* name, const std::string& text) {
  std::printf("%-28s %s\n", name, text.c_str());
}
std::string text(const char* format, auto... values) {
  std::array<char, 400> buffer;
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

// Which of those that come twice, with PyTorch and with a toolkit, the process has loaded.
void libraries() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> paths;
  for (std::string line; std::getline(maps, line);)
    for (const char* name : {"libcudart", "libcublas", "libcudnn.", "libnccl", "libcuda."})
      if (line.find(std::string("/") + name) != std::string::npos)
        paths.insert(line.substr(line.find('/')));
  for (const std::string& path : paths) line("library", path);
}

// ---- GEMMs

struct Product {
  const char* name;
  std::int64_t m, k, n;
};

void gemm_rates() {
  const std::int64_t rows = 16384;  // 16 samples of 1,024 tokens
  for (const Product& p : std::initializer_list<Product>{{"8192^3", 8192, 8192, 8192},
                                                         {"qkv", rows, 768, 2304},
                                                         {"out", rows, 768, 768},
                                                         {"up", rows, 768, 3072},
                                                         {"down", rows, 3072, 768},
                                                         {"head", rows, 768, 50304}}) {
    const Tensor x = at::randn({p.m, p.k}, kGpu16), w = at::randn({p.n, p.k}, kGpu16) * 0.02;
    const Tensor dy = at::randn({p.m, p.n}, kGpu16), bias = at::randn({p.n}, kGpu16);
    Tensor y = at::empty({p.m, p.n}, kGpu16), dx = at::empty({p.m, p.k}, kGpu16);
    Tensor dw = at::zeros({p.n, p.k}, kGpu32);
    const double flops = 2.0 * p.m * p.k * p.n / 1e12;
    const double forward = seconds([&] { at::mm_out(y, x, w.t()); });
    const double biased = seconds([&] { at::addmm_out(y, bias, x, w.t()); });
    const double input = seconds([&] { at::mm_out(dx, dy, w); });
    const double weight16 = seconds([&] { dw.add_(at::mm(dy.t(), x)); });
    std::string accumulate = "refused";
    try {
      const double s =
          seconds([&] { at::addmm_out(dw, dw, dy.t(), x, at::kFloat, /*beta=*/1, /*alpha=*/1); });
      accumulate = text("%.0f", flops / s);
    } catch (const std::exception&) {
    }
    line(p.name, text("TFLOP/s: forward %.0f, with bias %.0f, dx %.0f, dw 16 bit + add %.0f, "
                      "dw into fp32 (beta 1) %s",
                      flops / forward, flops / biased, flops / input, flops / weight16,
                      accumulate.c_str()));
  }
}

void gemm_bits() {
  const std::int64_t m = 4096, k = 768, n = 3072;
  const Tensor x = at::randn({m, k}, kGpu16), w = at::randn({n, k}, kGpu16);
  const Tensor once = at::mm(x, w.t());
  line("bits: GEMM again", yes(same(once, at::mm(x, w.t()))));
  const Tensor bias = at::randn({n}, kGpu16), biased = at::addmm(bias, x, w.t());
  for (const std::int64_t shift : {8, 16, 32, 64, 128}) {  // elements of 2 bytes
    const Tensor flat = at::empty({n * k + shift + n}, kGpu16);
    const Tensor moved = flat.narrow(0, shift, n * k).view({n, k});
    const Tensor moved_bias = flat.narrow(0, shift + n * k, n);
    moved.copy_(w);
    moved_bias.copy_(bias);
    line("bits: weight shifted by",
         text("%3d bytes: %s; with its bias: %s", static_cast<int>(2 * shift),
              yes(same(once, at::mm(x, moved.t()))),
              yes(same(biased, at::addmm(moved_bias, x, moved.t())))));
  }
  line("bits: rows in halves",
       yes(same(once, at::cat({at::mm(x.narrow(0, 0, m / 2), w.t()),
                               at::mm(x.narrow(0, m / 2, m / 2), w.t())}))));
  Tensor other;
  std::thread([&] {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    other = at::mm(x, w.t());
    c10::cuda::getCurrentCUDAStream().synchronize();
  }).join();
  line("bits: other thread, stream", yes(same(once, other)));
  const Tensor dy = at::randn({m, n}, kGpu16);
  Tensor a = at::zeros({n, k}, kGpu32), b = at::zeros({n, k}, kGpu32);
  for (Tensor* sum : {&a, &b})
    for (int i = 0; i < 2; ++i) add_weight_gradient(*sum, dy, x);
  line("bits: dw into fp32, again", yes(same(a, b)));
  const Tensor c = at::mm(dy.t(), x, at::kFloat);
  Tensor d = c.clone();
  add_weight_gradient(d, dy, x);
  line("bits: beta 1 against add", yes(same(d, c + c)));
}

// ---- Attention

void attention() {
  const std::int64_t batch = 16, heads = 12, length = 1024, width = 64;
  const Tensor qkv = at::randn({batch, length, 3 * heads * width}, kGpu16);
  const auto part = [&](int i) {
    return qkv.narrow(2, i * heads * width, heads * width)
        .view({batch, length, heads, width})
        .transpose(1, 2);
  };
  const Tensor dy = at::randn({batch, length, heads, width}, kGpu16).transpose(1, 2);
  const double flops = 2.0 * batch * heads * length * length * width / 1e12;  // causal, forward
  for (const bool deterministic : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(deterministic, false);
    const auto forward = [&] {
      return at::_scaled_dot_product_flash_attention(part(0), part(1), part(2), 0.0, true);
    };
    const auto saved = forward();
    const auto backward = [&] {
      return at::_scaled_dot_product_flash_attention_backward(
          dy, part(0), part(1), part(2), std::get<0>(saved), std::get<1>(saved), std::get<2>(saved),
          std::get<3>(saved), length, length, 0.0, true, std::get<6>(saved), std::get<7>(saved));
    };
    const auto first = backward();
    bool equal = true;
    for (int i = 0; i < 20; ++i) equal = equal && same(std::get<0>(first), std::get<0>(backward()));
    const double f = seconds([&] { forward(); }), b = seconds([&] { backward(); });
    line(deterministic ? "flash, deterministic" : "flash",
         text("forward %.0f TFLOP/s, backward %.0f; dq of 20 runs %s; output's strides %ld %ld %ld",
              flops / f, 2.5 * flops / b, yes(equal), std::get<0>(saved).stride(0),
              std::get<0>(saved).stride(1), std::get<0>(saved).stride(2)));
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
  try {
    const auto forward = [&] {
      return at::_scaled_dot_product_cudnn_attention(part(0), part(1), part(2), {}, true, 0.0,
                                                     true);
    };
    const auto saved = forward();
    const auto backward = [&] {
      return at::_scaled_dot_product_cudnn_attention_backward(
          dy, part(0), part(1), part(2), std::get<0>(saved), std::get<1>(saved), std::get<6>(saved),
          std::get<7>(saved), Tensor(), std::get<2>(saved), std::get<3>(saved), length, length, 0.0,
          true);
    };
    const auto first = backward();
    bool equal = true;
    for (int i = 0; i < 20; ++i) equal = equal && same(std::get<0>(first), std::get<0>(backward()));
    const double f = seconds([&] { forward(); }), b = seconds([&] { backward(); });
    line("cuDNN attention", text("forward %.0f TFLOP/s, backward %.0f; dq of 20 runs %s", flops / f,
                                 2.5 * flops / b, yes(equal)));
  } catch (const std::exception& error) {
    line("cuDNN attention", std::string("refused: ") + error.what());
  }
}

// ---- The step as a graph

void graph() {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const std::int64_t rows = 1024, width = 768;
  const int layers = 12;
  std::vector<Tensor> weights, gradients;
  for (int i = 0; i < layers; ++i) {
    weights.push_back((at::randn({width, width}, kGpu16) * 0.02).requires_grad_(true));
    gradients.push_back(at::zeros({width, width}, kGpu32));
  }
  const Tensor input = at::randn({rows, width}, kGpu16);
  const auto step = [&] {
    const at::NoGradGuard off;
    std::vector<Tensor> kept;
    Tensor x = input;
    for (const Tensor& w : weights) {
      kept.push_back(x);
      x = at::gelu(at::mm(x, w.t()), "tanh") + x;
    }
    Tensor dy = x;
    for (int i = layers - 1; i >= 0; --i) {
      add_weight_gradient(gradients[i], dy, kept[i]);
      dy = at::mm(dy, weights[i]);
    }
  };
  for (int i = 0; i < 3; ++i) step();
  for (const Tensor& g : gradients) g.zero_();
  step();
  std::vector<Tensor> eager;
  for (const Tensor& g : gradients) eager.push_back(g.clone());
  at::cuda::CUDAGraph recorded;
  c10::cuda::device_synchronize();
  recorded.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  step();
  recorded.capture_end();
  for (const Tensor& g : gradients) g.zero_();
  recorded.replay();
  bool equal = true;
  for (int i = 0; i < layers; ++i) equal = equal && same(eager[i], gradients[i]);
  const int kernels_a_step = layers * 3 + layers * 2;
  const double launch = host_seconds([&] {
                          for (int i = 0; i < 20; ++i) step();
                        }) /
                        20;
  const double eager_seconds = seconds(step), replayed = seconds([&] { recorded.replay(); });
  line("graph of 12 small layers",
       text("bits of eager: %s; %d kernels: eager %.2f ms (host %.2f us a kernel), replay %.2f ms",
            yes(equal), kernels_a_step, eager_seconds * 1e3, launch * 1e6 / kernels_a_step,
            replayed * 1e3));
}

// What a thread may ask while it captures; what it may not ends the capture.
void legal_in_capture() {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  Tensor x = at::zeros({1024}, kGpu32);
  cudaEvent_t before;
  cuda(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
  cuda(cudaEventRecord(before, stream));
  c10::cuda::device_synchronize();
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"nothing", [] { return cudaSuccess; }},
      {"query an event from before", [&] { return cudaEventQuery(before); }},
      {"wait for an event from before", [&] { return cudaStreamWaitEvent(stream, before, 0); }},
      {"make and destroy an event",
       [] {
         cudaEvent_t event;
         const cudaError_t made = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
         return made == cudaSuccess ? cudaEventDestroy(event) : made;
       }},
      {"make a stream",
       [] {
         cudaStream_t made;
         return cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
       }},
      {"lock host memory", [] {
         return cudaHostRegister(std::aligned_alloc(4096, 4096), 4096, cudaHostRegisterPortable);
       }}};
  for (const auto& [name, call] : calls) {
    cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    x.add_(1);
    const cudaError_t answer = call();
    cudaGraph_t graph = nullptr;
    const cudaError_t end = cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();
    if (graph) cuda(cudaGraphDestroy(graph));
    line("while capturing",
         text("%s: %s, the end: %s", name, cudaGetErrorName(answer), cudaGetErrorName(end)));
  }
}

// ---- Memory

// As a training sets them; a machine that has none runs with
// PYTORCH_ALLOC_CONF=expandable_segments:False.
void segments() {
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
  const Tensor x = at::ones({1 << 24}, kGpu32);
  bool expandable = false;
  for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot().segments)
    expandable = expandable || segment.is_expandable;
  line("expandable segments", expandable && x.sum().item<float>() == 1 << 24 ? "yes" : "NO");
}

void memory() {
  // A tracker stays for as long as the process.
  static std::mutex& mutex = *new std::mutex;
  static auto& live = *new std::map<std::int64_t, std::int64_t>;
  static std::int64_t allocated = 0, events = 0;
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(
      [](const c10::cuda::CUDACachingAllocator::TraceEntry& entry) {
        using Action = c10::cuda::CUDACachingAllocator::TraceEntry::Action;
        const std::lock_guard lock(mutex);
        ++events;
        if (entry.action_ == Action::ALLOC) {
          live[static_cast<std::int64_t>(entry.addr_)] = static_cast<std::int64_t>(entry.size_);
          allocated += static_cast<std::int64_t>(entry.size_);
        } else if (entry.action_ == Action::FREE_COMPLETED) {
          // What was there before the tracker counts for nothing.
          allocated -= live[static_cast<std::int64_t>(entry.addr_)];
          live.erase(static_cast<std::int64_t>(entry.addr_));
        }
      });
  Tensor one = at::empty({1}, kGpu32), many = at::empty({1000003}, kGpu32);
  line("tracker",
       text("%ld events for two tensors of 4 and 4000012 bytes: %ld bytes", events, allocated));
  std::thread([&] { many.reset(); }).join();
  one.reset();
  line("tracker, freed elsewhere", text("%ld bytes left", allocated));
  const Tensor flat = at::randn({1024}, kGpu32), view = flat.narrow(0, 0, 512);
  const Tensor other = at::randn({1024}, kGpu32), copy = other.clone();
  flat.storage().set_data_ptr(c10::DataPtr(other.data_ptr(), other.device()));
  line("set_data_ptr on CUDA", yes(same(view, copy.narrow(0, 0, 512))));
}

void transfers() {
  const std::size_t bytes = 256u << 20;
  void *pinned = nullptr, *registered = std::aligned_alloc(4096, bytes), *device = nullptr,
       *device2 = nullptr;
  cuda(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault));
  std::fill_n(static_cast<char*>(registered), bytes, 1);
  const double registering =
      host_seconds([&] { cuda(cudaHostRegister(registered, bytes, cudaHostRegisterDefault)); });
  cuda(cudaMalloc(&device, bytes));
  cuda(cudaMalloc(&device2, bytes));
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
    const double s = seconds(
        [&] {
          cuda(cudaMemcpyAsync(to, from, bytes, kind, c10::cuda::getCurrentCUDAStream().stream()));
        },
        8);
    return bytes / s / 1e9;
  };
  line("host to device", text("pinned %.1f GB/s, registered %.1f (registering 256 MB: %.0f ms)",
                              copy(device, pinned, cudaMemcpyHostToDevice),
                              copy(device, registered, cudaMemcpyHostToDevice), registering * 1e3));
  line("device to host",
       text("pinned %.1f GB/s, registered %.1f", copy(pinned, device, cudaMemcpyDeviceToHost),
            copy(registered, device, cudaMemcpyDeviceToHost)));
  const auto down = c10::cuda::getStreamFromPool();
  const double both = host_seconds([&] {
    for (int i = 0; i < 8; ++i) {
      cuda(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice,
                           c10::cuda::getCurrentCUDAStream().stream()));
      cuda(cudaMemcpyAsync(registered, device2, bytes, cudaMemcpyDeviceToHost, down.stream()));
    }
    c10::cuda::device_synchronize();
  });
  line("both at once", text("%.1f GB/s each way", 8 * bytes / both / 1e9));
  line("device to device",
       text("%.0f GB/s read and written", 2 * copy(device, device2, cudaMemcpyDeviceToDevice)));
}

// ---- Ranks

void ranks() {
  // Two ranks on one GPU: each thread runs its own backward with autograd's threading off.
  const Tensor w = at::randn({256, 256}, kGpu32), x = at::randn({64, 256}, kGpu32);
  std::array<Tensor, 2> gradients;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      const Tensor leaf = w.detach().clone().requires_grad_(true);
      for (int i = 0; i < 50; ++i) {
        if (leaf.grad().defined()) leaf.mutable_grad().reset();
        at::mm(x, leaf).sum().backward();
      }
      gradients[rank] = leaf.grad();
    });
  for (std::thread& thread : threads) thread.join();
  line("two ranks on one GPU", yes(same(gradients[0], gradients[1])));
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("gpu_facts: no CUDA device, nothing was tried");
    return 77;
  }
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  cudaDeviceProp properties{};
  cuda(cudaGetDeviceProperties(&properties, 0));
  line("device", text("%s, %d multiprocessors, %.1f GiB, torch " TORCH_VERSION, properties.name,
                      properties.multiProcessorCount, properties.totalGlobalMem / 1073741824.0));
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  const std::pair<const char*, void (*)()> all[] = {
      {"segments", segments},   {"gemm_bits", gemm_bits}, {"gemm_rates", gemm_rates},
      {"attention", attention}, {"graph", graph},         {"legal_in_capture", legal_in_capture},
      {"memory", memory},       {"transfers", transfers}, {"ranks", ranks},
      {"libraries", libraries}};
  for (const auto& [name, facts] : all) {
    try {
      facts();
    } catch (const std::exception& error) {
      line(name, std::string("FAILED: ") + error.what());
    }
    std::fflush(stdout);
  }
  return 0;
}
