#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strata/base/measurement.h"
#include "strata/base/units.h"
#include "strata/cli/verbs.h"
#include "strata/pipeline/processor.h"

namespace strata {
namespace {

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

std::string instruction_sets() {
  std::string sets;
  if (__builtin_cpu_supports("avx2")) sets += "avx2 ";
  if (__builtin_cpu_supports("fma")) sets += "fma ";
  if (__builtin_cpu_supports("avx512f")) sets += "avx512f ";
  if (__builtin_cpu_supports("avx512bf16")) sets += "avx512bf16 ";
  return sets.empty() ? "baseline only" : sets;
}

std::string gflops(double flops_per_second) { return format_double(flops_per_second / 1e9, 1); }

std::string rates_text(const PrecisionRates& rates, int cores) {
  std::string text;
  for (const PrecisionRate& rate : rates)
    text += "GEMM, " + precision_name(rate.precision) + "    " +
            gflops(rate.flops_per_second_one_thread) + " GFLOP/s with one thread, " +
            gflops(rate.flops_per_second) + " with " + std::to_string(cores) + '\n';
  return text + "fast in       " + fastest_text(rates) + '\n';
}

nlohmann::json rates_json(const PrecisionRates& rates) {
  nlohmann::json json;
  for (const PrecisionRate& rate : rates)
    json[precision_name(rate.precision)] = {
        {"gemm_flops_per_second_one_thread", rate.flops_per_second_one_thread},
        {"gemm_flops_per_second", rate.flops_per_second}};
  return json;
}

void run_doctor(bool as_json) {
  const ProcessorIdentity processor = ProcessorIdentity::of_this_machine();
  const PrecisionRates rates = measure_precision_rates(processor.cores);
  // Plans read it: an estimate says which precision is fast without measuring anything.
  save_rates(default_rates_file(), processor, rates);
  const double bandwidth = triad_bytes_per_second(processor.cores);
  const auto space = std::filesystem::space(".");
  if (as_json) {
    std::cout << nlohmann::json{{"processor", processor.model},
                                {"cores", processor.cores},
                                {"instruction_sets", instruction_sets()},
                                {"aten_instruction_set", processor.instruction_set},
                                {"libtorch", processor.libtorch},
                                {"precisions", rates_json(rates)},
                                {"fast_in", precision_name(fastest_precision(rates))},
                                {"memory_bytes_per_second", bandwidth},
                                {"disk_free_bytes", space.available}}
                     .dump(1)
              << '\n';
    return;
  }
  std::cout << "processor     " << processor.model << ", " << processor.cores << " cores, "
            << instruction_sets() << "\nlibtorch      " << processor.libtorch << ", uses "
            << processor.instruction_set << '\n'
            << rates_text(rates, processor.cores) << "memory        "
            << format_double(bandwidth / 1e9, 1) << " GB/s (triad)\ndisk          "
            << format_bytes(static_cast<std::int64_t>(space.available))
            << " free here\nbalance       "
            << format_double(rates.front().flops_per_second / bandwidth, 1)
            << " fp32 operations a byte: what does fewer is limited by memory\n";
}

}  // namespace

void add_doctor_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("doctor", "measure what this machine can do");
  auto as_json = std::make_shared<bool>(false);
  verb->add_flag("--json", *as_json, "print one JSON object");
  verb->callback([as_json] { run_doctor(*as_json); });
}

}  // namespace strata
