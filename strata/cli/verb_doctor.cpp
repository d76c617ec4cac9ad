#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "strata/base/clock.h"
#include "strata/base/units.h"
#include "strata/cli/verbs.h"

namespace strata {
namespace {

constexpr std::int64_t kGemmSize = 1024;
constexpr std::int64_t kTriadElements = 1 << 26;  // 256 MiB an array
constexpr int kRounds = 5;

// The best of a few runs: what the machine can do when nobody disturbs it.
template <typename F>
double best_seconds(F f) {
  f();
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = now_seconds();
    f();
    best = std::min(best, now_seconds() - begin);
  }
  return best;
}

double gemm_flops_per_second(int threads) {
  at::set_num_threads(threads);
  const at::Tensor a = at::randn({kGemmSize, kGemmSize}), b = at::randn({kGemmSize, kGemmSize});
  at::Tensor c = at::mm(a, b);
  return 2.0 * kGemmSize * kGemmSize * kGemmSize / best_seconds([&] { at::mm_out(c, a, b); });
}

// a = b + s c, as STREAM's triad: three arrays over the memory bus.
double triad_bytes_per_second(int threads) {
  at::set_num_threads(threads);
  std::vector<float> a(kTriadElements), b(kTriadElements, 1), c(kTriadElements, 2);
  const double seconds = best_seconds([&] {
    at::parallel_for(0, kTriadElements, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) a[i] = b[i] + 3.0f * c[i];
    });
  });
  return 3.0 * sizeof(float) * kTriadElements / seconds;
}

std::string processor() {
  std::string line;
  for (std::ifstream cpu("/proc/cpuinfo"); std::getline(cpu, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string instruction_sets() {
  std::string sets;
  if (__builtin_cpu_supports("avx2")) sets += "avx2 ";
  if (__builtin_cpu_supports("fma")) sets += "fma ";
  if (__builtin_cpu_supports("avx512f")) sets += "avx512f ";
  if (__builtin_cpu_supports("avx512bf16")) sets += "avx512bf16 ";
  return sets.empty() ? "baseline only" : sets;
}

void run_doctor(bool as_json) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const double one = gemm_flops_per_second(1), all = gemm_flops_per_second(cores);
  const double bandwidth = triad_bytes_per_second(cores);
  const auto space = std::filesystem::space(".");
  if (as_json) {
    std::cout << nlohmann::json{{"processor", processor()},
                                {"cores", cores},
                                {"instruction_sets", instruction_sets()},
                                {"libtorch", TORCH_VERSION},
                                {"gemm_flops_per_second_one_thread", one},
                                {"gemm_flops_per_second", all},
                                {"memory_bytes_per_second", bandwidth},
                                {"disk_free_bytes", space.available}}
                     .dump(1)
              << '\n';
    return;
  }
  std::cout << "processor     " << processor() << ", " << cores << " cores, " << instruction_sets()
            << "\nlibtorch      " << TORCH_VERSION << "\nGEMM, fp32    "
            << format_double(one / 1e9, 1) << " GFLOP/s with one thread, "
            << format_double(all / 1e9, 1) << " with " << cores << " (" << kGemmSize
            << " squared)\nmemory        " << format_double(bandwidth / 1e9, 1)
            << " GB/s (triad)\ndisk          "
            << format_bytes(static_cast<std::int64_t>(space.available))
            << " free here\nbalance       " << format_double(all / bandwidth, 1)
            << " operations a byte: what does fewer is limited by memory\n";
}

}  // namespace

void add_doctor_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("doctor", "measure what this machine can do");
  auto as_json = std::make_shared<bool>(false);
  verb->add_flag("--json", *as_json, "print one JSON object");
  verb->callback([as_json] { run_doctor(*as_json); });
}

}  // namespace strata
