// Rates are measured with products that exceed the caches but are small enough that a precision
// without its own instructions (a hundred times slower) completes soon.
#include "strata/measure/processor.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/base/units.h"
#include "strata/device/device.h"
#include "strata/measure/probe_cache.h"
#include "strata/nn/host/host_primitives.h"

namespace strata {
namespace {

constexpr at::ScalarType kPrecisions[] = {at::kFloat, at::kBFloat16, at::kHalf};
constexpr std::int64_t kProductSize = 768;
constexpr int kMinProducts = 3;
constexpr double kRateSeconds = 0.5;
// Below this share of fp32's rate a precision costs time instead of saving it.
constexpr double kSlow = 0.95;

struct Product {
  at::Tensor a, b, c;

  // fp32 as layers multiply it, 16 bit by its own instructions, whether layers use them or not.
  void multiply() {
    if (a.scalar_type() == at::kFloat) {
      c = host_primitives().products.product(a, b, {});
    } else {
      at::mm_out(c, a, b);
    }
  }

  double best_seconds = std::numeric_limits<double>::infinity();
};

// Rounds of all precisions, one after the other: a disturbance meets each of them.
std::vector<double> best_rates(int threads) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  std::vector<Product> products;
  for (const at::ScalarType precision : kPrecisions) {
    const auto factor = [&] {
      return at::randn({kProductSize, kProductSize}, host_options(at::kFloat)).to(precision);
    };
    products.push_back({.a = factor(), .b = factor(), .c = factor()});
  }
  const double begin = now_seconds();
  for (int round = 0; round < kMinProducts || now_seconds() - begin < kRateSeconds; ++round) {
    for (Product& product : products) {
      const double start = now_seconds();
      product.multiply();
      // The first one warms up.
      if (round > 0) product.best_seconds = std::min(product.best_seconds, now_seconds() - start);
    }
  }
  at::set_num_threads(before);
  std::vector<double> rates;
  for (const Product& product : products)
    rates.push_back(2.0 * kProductSize * kProductSize * kProductSize / product.best_seconds);
  return rates;
}

const PrecisionRate* rate_of(at::ScalarType precision, const PrecisionRates& rates) {
  for (const PrecisionRate& rate : rates)
    if (rate.precision == precision) return &rate;
  return nullptr;
}

constexpr const char* kMachine = "machine";  // key next to the precisions

nlohmann::json& entry_of(nlohmann::json& all, const ProcessorIdentity& identity) {
  nlohmann::json& entry = all[identity.text()];
  if (!entry.is_object()) entry = nlohmann::json::object();
  return entry;
}

const PrecisionRate* fastest_of(const PrecisionRates& rates) {
  const auto fastest = std::max_element(rates.begin(), rates.end(),
                                        [](const PrecisionRate& a, const PrecisionRate& b) {
                                          return a.flops_per_second < b.flops_per_second;
                                        });
  return fastest == rates.end() ? nullptr : &*fastest;
}

}  // namespace

ProcessorIdentity ProcessorIdentity::of_this_machine() {
  ProcessorIdentity identity{.model = "unknown processor",
                             .cores = static_cast<int>(std::thread::hardware_concurrency()),
                             .instruction_set = at::get_cpu_capability(),
                             .libtorch = TORCH_VERSION};
  std::string line;
  for (std::ifstream cpu("/proc/cpuinfo"); std::getline(cpu, line);) {
    if (!line.starts_with("model name")) continue;
    identity.model = line.substr(line.find(':') + 2);
    break;
  }
  if (const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA"); limit && *limit)
    identity.instruction_set += std::string(", oneDNN ") + limit;
  if (multiplies_by_onednn()) identity.instruction_set += ", fp32 by oneDNN";
  return identity;
}

std::string ProcessorIdentity::text() const {
  return model + " x" + std::to_string(cores) + ", " + instruction_set + ", libtorch " + libtorch;
}

std::string precision_name(at::ScalarType precision) {
  if (precision == at::kBFloat16) return "bf16";
  return precision == at::kHalf ? "fp16" : "fp32";
}

PrecisionRates measure_precision_rates(int cores) {
  const std::vector<double> one = best_rates(1);
  const std::vector<double> all = cores > 1 ? best_rates(cores) : one;
  PrecisionRates rates;
  for (std::size_t i = 0; i < std::size(kPrecisions); ++i)
    rates.push_back({kPrecisions[i], one[i], all[i]});
  return rates;
}

at::ScalarType fastest_precision(const PrecisionRates& rates) {
  const PrecisionRate* fastest = fastest_of(rates);
  return fastest ? fastest->precision : at::kFloat;
}

std::string fastest_text(const PrecisionRates& rates) {
  const PrecisionRate* fastest = fastest_of(rates);
  const PrecisionRate* fp32 = rate_of(at::kFloat, rates);
  if (!fastest || !fp32 || fp32->flops_per_second <= 0) return "";
  if (fastest == fp32) return "fp32: 16 bit saves memory here, not time";
  return precision_name(fastest->precision) + ": " +
         format_double(fastest->flops_per_second / fp32->flops_per_second, 1) +
         " times the products of fp32";
}

std::string slow_precision_text(at::ScalarType precision, const PrecisionRates& rates) {
  const PrecisionRate* requested = rate_of(precision, rates);
  const PrecisionRate* fp32 = rate_of(at::kFloat, rates);
  const PrecisionRate* fastest = fastest_of(rates);
  if (!requested || !fp32 || precision == at::kFloat) return "";
  if (requested->flops_per_second >= kSlow * fp32->flops_per_second) return "";
  return precision_name(precision) +
         " is slow on this processor: " + format_double(requested->flops_per_second / 1e9, 1) +
         " GFLOP/s, " + precision_name(fastest->precision) + " " +
         format_double(fastest->flops_per_second / 1e9, 1) +
         "; set train.precision=" + precision_name(fastest->precision) +
         " unless it is for the memory";
}

std::string default_rates_file() { return default_cache_file("doctor.json"); }

void save_rates(const std::string& file, const ProcessorIdentity& identity,
                const PrecisionRates& rates) {
  if (file.empty()) return;
  nlohmann::json all = read_cache_file(file);
  nlohmann::json& entry = entry_of(all, identity);
  for (const PrecisionRate& rate : rates)
    entry[precision_name(rate.precision)] = {rate.flops_per_second_one_thread,
                                             rate.flops_per_second};
  write_cache_file(file, all);
}

std::optional<PrecisionRates> load_rates(const std::string& file,
                                         const ProcessorIdentity& identity) {
  const nlohmann::json all = read_cache_file(file);
  const auto entry = all.find(identity.text());
  if (entry == all.end() || !entry->is_object()) return std::nullopt;
  PrecisionRates rates;
  for (const at::ScalarType precision : kPrecisions) {
    const auto pair = entry->find(precision_name(precision));
    if (pair == entry->end() || !pair->is_array() || pair->size() != 2 || !(*pair)[0].is_number() ||
        !(*pair)[1].is_number())
      return std::nullopt;
    rates.push_back({precision, (*pair)[0].get<double>(), (*pair)[1].get<double>()});
  }
  return rates;
}

void save_profile(const std::string& file, const ProcessorIdentity& identity,
                  const MachineProfile& machine) {
  if (file.empty()) return;
  nlohmann::json all = read_cache_file(file);
  nlohmann::json& saved = entry_of(all, identity)[kMachine];
  if (!saved.is_object()) saved = nlohmann::json::object();
  saved.merge_patch(to_json(machine));
  write_cache_file(file, all);
}

MachineProfile load_profile(const std::string& file, const ProcessorIdentity& identity,
                            MachineKind device) {
  MachineProfile machine;
  const nlohmann::json all = read_cache_file(file);
  const auto entry = all.find(identity.text());
  if (entry == all.end() || !entry->is_object()) return machine;
  const auto saved = entry->find(kMachine);
  if (saved != entry->end()) {
    try {
      machine = parse_machine(saved->dump(), file);
    } catch (const Error&) {
      machine = {};  // it only costs the time of measuring again
    }
  }
  if (machine.device.kind == MachineKind::kCuda) {
    if (device == MachineKind::kCuda) return machine;
    machine.device = {}, machine.link = {}, machine.peers = {};
  }
  const auto rates = load_rates(file, identity);
  const auto flops = [&](at::ScalarType precision) {
    const PrecisionRate* rate = rates ? rate_of(precision, *rates) : nullptr;
    return rate ? rate->flops_per_second : 0;
  };
  machine.device.fp32 = flops(at::kFloat);
  machine.device.bf16 = flops(at::kBFloat16);
  machine.device.fp16 = flops(at::kHalf);
  machine.device.bandwidth = machine.host.update;  // for a processor: host memory
  return machine;
}

}  // namespace strata
