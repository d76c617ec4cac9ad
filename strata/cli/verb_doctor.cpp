#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/units.h"
#include "strata/cli/arguments.h"
#include "strata/cli/verbs.h"
#include "strata/comm/library_environment.h"
#include "strata/device/block_malloc.h"
#include "strata/device/determinism.h"
#include "strata/device/device.h"
#include "strata/device/fast_products.h"
#include "strata/measure/device_rates.h"
#include "strata/measure/machine_rates.h"
#include "strata/measure/processor.h"
#include "strata/nn/host/sgemm.h"
#include "strata/serve/bit_check.h"
#include "strata/transport/transport_choice.h"

namespace strata {
namespace {

struct DoctorArguments {
  bool as_json = false;
  std::string disk;  // folder to measure; empty: none
  std::string save;  // file to write; empty: none
};

std::string instruction_sets() {
  std::string sets;
  if (__builtin_cpu_supports("avx2")) sets += "avx2 ";
  if (__builtin_cpu_supports("fma")) sets += "fma ";
  if (__builtin_cpu_supports("avx512f")) sets += "avx512f ";
  if (__builtin_cpu_supports("avx512bf16")) sets += "avx512bf16 ";
  return sets.empty() ? "baseline only" : sets;
}

// Advice for processors on which MKL uses fewer instructions than they have and no other library is
// built in.
std::string fp32_advice() {
  if (!mkl_leaves_avx512() || has_onednn()) return "";
  return "fp32          by MKL, which uses AVX2 here; oneDNN is twice as fast: install libdnnl2 or "
         "libdnnl3\n";
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

std::string gigabytes(Bytes rate, int decimals = 1) {
  return format_double(static_cast<double>(rate.count) / 1e9, decimals);
}

std::string machine_text(const MachineProfile& machine, const DoctorArguments& arguments,
                         bool gpus) {
  constexpr double kUpdateBytes = 28;  // of AdamW in fp32, per element
  const auto& [bytes, reserve, cores, copy, triad, update, update_one_core] = machine.host;
  std::string text =
      "memory        " + format_bytes(cpu_backend().free_bytes(0)) + " free of " +
      format_bytes(bytes.count) + ", " + gigabytes(copy) + " GB/s copied, " + gigabytes(triad) +
      " triad\nupdates       " + gigabytes(update) + " GB/s of AdamW (" +
      format_count(static_cast<double>(update.count) / kUpdateBytes) + " parameters/s) with " +
      std::to_string(cores) + " threads, " + gigabytes(update_one_core) +
      " with one\nlink          " + gigabytes(machine.link.to_device) + " GB/s to the device, " +
      gigabytes(machine.link.to_host) + " to the host, " + format_seconds(machine.link.latency) +
      " a transfer" + (gpus ? "" : " (within memory: no other device here)") + "\ndisk          ";
  if (arguments.disk.empty()) {
    text += "not measured: --disk FOLDER; ";
  } else {
    text += gigabytes(machine.disk.read, 2) + " GB/s read, " + gigabytes(machine.disk.write, 2) +
            " written in " + arguments.disk + "; ";
  }
  return text;
}

// Measures every GPU; plans use the rates of the first.
std::vector<DeviceRates> measure_gpus(MachineProfile& machine) {
  std::vector<DeviceRates> gpus;
  if (cuda_backend().count() > 0) prepare_device(DeviceKind::kCuda, /*deterministic=*/false);
  for (int index = 0; index < cuda_backend().count(); ++index)
    gpus.push_back(measure_device({DeviceKind::kCuda, index}));
  if (!gpus.empty()) set_device(machine, gpus.front());
  return gpus;
}

std::vector<std::string> warnings() {
  const Environment variable = [](const char* name) { return std::getenv(name); };
  std::vector<std::string> all = environment_warnings(variable);
  for (std::string& warning : library_warnings(variable)) all.push_back(std::move(warning));
  return all;
}

std::string gpus_text(const std::vector<DeviceRates>& gpus) {
  if (gpus.empty()) return "GPU           none: " + cuda_backend().why_none() + '\n';
  std::string text;
  for (std::size_t i = 0; i < gpus.size(); ++i) text += device_text(static_cast<int>(i), gpus[i]);
  text += "NCCL          " + cuda_backend().nccl_version() + '\n' + "sums          " +
          library_promise() + '\n';
  for (const std::string& warning : warnings()) text += "environment   " + warning + '\n';
  return text;
}

TransportChoice transport_here() {
  return choose_transport(TransportKind::kAuto, ucx_support_of_this_machine());
}

std::string transport_text() {
  const TransportChoice choice = transport_here();
  return "network       " + std::string(name_of(choice.kind)) +
         " between machines: " + choice.reason + '\n';
}

// By precision: the first operation in which a server's logits differ from training's; empty: none.
std::map<std::string, std::string> served_differences() {
  std::map<std::string, std::string> all;
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16})
    all[precision_name(precision)] = decoding_differs_in(precision);
  return all;
}

std::string served_text() {
  std::string text;
  for (const auto& [precision, operation] : served_differences())
    text += (text.empty() ? "serving       " : ", ") + precision +
            (operation.empty() ? " has training's bits" : " differs in " + operation);
  return text + '\n';
}

nlohmann::json transport_json() {
  const TransportChoice choice = transport_here();
  return {{"kind", name_of(choice.kind)}, {"reason", choice.reason}};
}

nlohmann::json gpus_json(const std::vector<DeviceRates>& gpus) {
  nlohmann::json list = nlohmann::json::array();
  for (const DeviceRates& gpu : gpus) list.push_back(device_json(gpu));
  return list;
}

void run_doctor(const DoctorArguments& arguments) {
  if (!arguments.save.empty()) require_writable_file(arguments.save, "--save");
  const ProcessorIdentity processor = ProcessorIdentity::of_this_machine();
  MachineProfile machine =
      measure_machine({.cores = processor.cores, .disk_folder = arguments.disk});
  const PrecisionRates rates = measure_precision_rates(processor.cores);
  const std::vector<DeviceRates> gpus = measure_gpus(machine);
  // Plans read this file, so an estimate knows the rates without measuring.
  const std::string file = default_rates_file();
  save_rates(file, processor, rates);
  machine.name = processor.model;
  save_profile(file, processor, machine);
  if (!arguments.save.empty()) {
    const MachineProfile known =
        file.empty() ? machine : load_profile(file, processor, machine.device.kind);
    write_file(arguments.save, to_json(known).dump(1) + "\n");
  }
  const auto space = std::filesystem::space(arguments.disk.empty() ? "." : arguments.disk);
  const auto bandwidth = static_cast<double>(machine.host.triad.count);
  if (arguments.as_json) {
    std::cout << nlohmann::json{{"processor", processor.model},
                                {"cores", processor.cores},
                                {"instruction_sets", instruction_sets()},
                                {"aten_instruction_set", processor.instruction_set},
                                {"libtorch", processor.libtorch},
                                {"tensors_by", block_malloc_name()},
                                {"precisions", rates_json(rates)},
                                {"fast_in", precision_name(fastest_precision(rates))},
                                {"machine", to_json(machine)},
                                {"gpus", gpus_json(gpus)},
                                {"why_no_gpu", cuda_backend().why_none()},
                                {"environment", warnings()},
                                {"transport", transport_json()},
                                {"serving_differs_in", served_differences()},
                                {"memory_bytes_per_second", bandwidth},
                                {"memory_free_bytes", cpu_backend().free_bytes(0)},
                                {"disk_free_bytes", space.available}}
                     .dump(1)
              << '\n';
    return;
  }
  std::cout << "processor     " << processor.model << ", " << processor.cores << " cores, "
            << instruction_sets() << "\nlibtorch      " << processor.libtorch << ", uses "
            << processor.instruction_set << "\ntensors by    " << block_malloc_name() << '\n'
            << fp32_advice() << rates_text(rates, processor.cores) << gpus_text(gpus)
            << transport_text() << served_text() << machine_text(machine, arguments, !gpus.empty())
            << format_bytes(static_cast<std::int64_t>(space.available)) << " free\nbalance       "
            << format_double(rates.front().flops_per_second / bandwidth, 1)
            << " fp32 operations a byte: what does fewer is limited by memory\n";
  if (!file.empty()) std::cout << "saved in      " << file << ", which plans read\n";
}

}  // namespace

void add_doctor_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("doctor", "measure what this machine can do");
  auto arguments = std::make_shared<DoctorArguments>();
  verb->add_flag("--json", arguments->as_json, "print one JSON object");
  verb->add_option("--disk", arguments->disk,
                   "also read and write a file of 256 MiB in this folder, and remove it")
      ->check(refuse_empty_path)
      ->type_name("FOLDER");
  verb->add_option("--save", arguments->save,
                   "write the machine to this file, too, for plan --machine")
      ->check(refuse_empty_path)
      ->type_name("FILE");
  verb->callback([arguments] { run_doctor(*arguments); });
}

}  // namespace strata
