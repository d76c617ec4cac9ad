// host_adam NUMEL THREADS SECONDS: times steps of AdamW on the host. Reads names of contestants, a
// line each; answers with the seconds of the steps that it made, as a JSON list.
//
//     split         16 + 16 bit weights, bf16 gradients; the upper half is the bf16 weight
//     copy          fp32 weights, bf16 gradients, a bf16 copy of the weights
//     fp32          fp32 weights and gradients
//     aten          at::_fused_adamw_ between its casts from and to bf16
//     aten-fp32     at::_fused_adamw_ alone
//     limit-split, limit-copy, limit-fp32
//                   the same arrays read and written, with next to no arithmetic: what memory gives
//
// All contestants work on the same arrays: 22 bytes per parameter. The first step of an answer is
// not measured, because caches and threads are those of the contestant before. Then steps follow
// for SECONDS, at least one.
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "strata/device/parallel.h"
#include "strata/optim/optimizer.h"

namespace {

using namespace strata;

constexpr OptimizerOptions kAdamW{};
constexpr double kRate = 1e-3;

at::Tensor numbers(std::int64_t numel, double size, at::ScalarType dtype) {
  // Drawn once and repeated: what a step costs does not depend on values, short of denormals.
  const at::Tensor drawn = at::rand({1 << 16}, at::kFloat).mul_(size).to(dtype);
  at::Tensor result = at::empty({numel}, drawn.options());
  for (std::int64_t i = 0; i < numel; i += drawn.numel()) {
    const std::int64_t n = std::min(drawn.numel(), numel - i);
    result.narrow(0, i, n).copy_(drawn.narrow(0, 0, n));
  }
  return result;
}

struct Arrays {
  explicit Arrays(std::int64_t numel)
      : weights(numbers(numel, 0.1, at::kFloat)),
        mean(numbers(numel, 1e-3, at::kFloat)),
        square(numbers(numel, 1e-6, at::kFloat)),
        gradients(numbers(numel, 1e-2, at::kFloat)),
        narrow_gradients(gradients.to(at::kBFloat16)),
        high(weights.to(at::kBFloat16)),
        low(high.clone()) {}

  at::Tensor weights, mean, square, gradients, narrow_gradients, high, low;
};

std::uint16_t* halves(const at::Tensor& flat) {
  return reinterpret_cast<std::uint16_t*>(flat.data_ptr());
}

void update_split(const Arrays& a, std::int64_t step) {
  update_on_threads(update_step(kAdamW, step, kRate),
                    {.split = {halves(a.high), halves(a.low)},
                     .gradients = a.narrow_gradients.const_data_ptr(),
                     .gradient_element = kernels::Element::kBf16,
                     .slots = {a.mean.data_ptr<float>(), a.square.data_ptr<float>()},
                     .decay_numel = a.mean.numel()},
                    a.mean.numel());
}

void update_fp32(const Arrays& a, std::int64_t step, bool casts) {
  Optimizer(kAdamW).update({.weights = a.weights,
                            .gradients = casts ? a.narrow_gradients : a.gradients,
                            .slots = {a.mean, a.square},
                            .decay_numel = a.mean.numel(),
                            .rounded = casts ? a.high : at::Tensor()},
                           step, kRate);
}

void update_by_aten(const Arrays& a, std::int64_t step, bool casts) {
  if (casts) at::Tensor(a.gradients).copy_(a.narrow_gradients);
  at::_fused_adamw_({a.weights}, {a.gradients}, {a.mean}, {a.square}, {},
                    {at::full({}, static_cast<double>(step), at::kFloat)}, kRate, kAdamW.beta1,
                    kAdamW.beta2, kAdamW.weight_decay, kAdamW.epsilon, /*amsgrad=*/false,
                    /*maximize=*/false);
  if (casts) at::Tensor(a.high).copy_(a.weights);
}

// ---- The limit ----------------------------------------------------------------------------------

using Line = std::uint64_t __attribute__((vector_size(64)));  // a cache line

#ifdef __clang__
#define write_around_cache __builtin_nontemporal_store
#else
#define write_around_cache(line, to) (*(to) = (line))
#endif

// A line holds 32 elements of a 16-bit array, half as many of fp32. `mask` is 0, which the compiler
// doesn't know: everything is read and written, and keeps its values.
__attribute__((target_clones("avx512f", "avx2", "default"))) void stream(
    Line* const* updated, const int* lines_updated, int num_updated, const Line* read,
    int lines_read, Line* written, std::uint64_t mask, std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kAhead = 16;  // 512 elements: the best of the powers of two
  const auto fetch = [](const Line* array, int lines, std::int64_t i) {
    for (int k = 0; k < lines; ++k) __builtin_prefetch(array + (i + kAhead) * lines + k);
  };
  for (std::int64_t i = first; i < last; ++i) {
    fetch(read, lines_read, i);
    Line value = read[i * lines_read];
    if (lines_read == 2) value ^= read[i * 2 + 1];
    value &= mask;
    for (int k = 0; k < num_updated; ++k) {
      fetch(updated[k], lines_updated[k], i);
      Line* line = updated[k] + i * lines_updated[k];
      line[0] ^= value;
      if (lines_updated[k] == 2) line[1] ^= value;
    }
    if (written) write_around_cache(value, written + i);
  }
}

Line* lines_of(const at::Tensor& flat) { return static_cast<Line*>(flat.data_ptr()); }
int lines_in(const at::Tensor& flat) { return static_cast<int>(flat.element_size() / 2); }

void limit(const std::vector<at::Tensor>& updated, const at::Tensor& read,
           const at::Tensor& written = {}) {
  static volatile std::uint64_t zero = 0;
  const std::uint64_t mask = zero;
  std::vector<Line*> pointers;
  std::vector<int> lines;
  for (const at::Tensor& flat : updated) {
    pointers.push_back(lines_of(flat));
    lines.push_back(lines_in(flat));
  }
  parallel_ranges(read.numel() / 32, 1 << 10, [&](std::int64_t begin, std::int64_t end) {
    stream(pointers.data(), lines.data(), static_cast<int>(pointers.size()), lines_of(read),
           lines_in(read), written.defined() ? lines_of(written) : nullptr, mask, begin, end);
  });
}

bool make_step(const std::string& what, const Arrays& a, std::int64_t step) {
  if (what == "split") return update_split(a, step), true;
  if (what == "copy") return update_fp32(a, step, true), true;
  if (what == "fp32") return update_fp32(a, step, false), true;
  if (what == "aten") return update_by_aten(a, step, true), true;
  if (what == "aten-fp32") return update_by_aten(a, step, false), true;
  if (what == "limit-split")
    return limit({a.high, a.low, a.mean, a.square}, a.narrow_gradients), true;
  if (what == "limit-copy")
    return limit({a.weights, a.mean, a.square}, a.narrow_gradients, a.high), true;
  if (what == "limit-fp32") return limit({a.weights, a.mean, a.square}, a.gradients), true;
  return false;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fputs("usage: host_adam NUMEL THREADS SECONDS\n", stderr), 2;
  const std::int64_t numel = std::stoll(argv[1]);
  if (numel % 32 != 0) return std::fputs("host_adam: NUMEL is a multiple of 32\n", stderr), 2;
  const int threads = std::stoi(argv[2]);
  const double seconds = std::stod(argv[3]);
  at::set_num_threads(threads);
  ThreadPool pool(threads);
  const ThreadPoolScope scope(pool, ThreadPoolScope::AtenThreads::kKeep);
  const Arrays arrays(numel);

  std::int64_t step = 0;
  for (std::string what; std::getline(std::cin, what);) {
    if (!make_step(what, arrays, ++step))
      return std::fprintf(stderr, "host_adam: no contestant '%s'\n", what.c_str()), 2;
    std::string answer;
    for (double spent = 0; answer.empty() || spent < seconds;) {
      const double began = now();
      make_step(what, arrays, ++step);
      const double took = now() - began;
      spent += took;
      answer += (answer.empty() ? "[" : ", ") + std::to_string(took);
    }
    std::printf("%s]\n", answer.c_str());
    std::fflush(stdout);
  }
}
