#include "strata/plan/machine_profile.h"

#include <strings.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr double kMostCores = 1 << 16;
constexpr double kMostLinkLatency = 1;
constexpr double kMostOperations = 1e18;
constexpr double kMostLaunch = 1e-2;
constexpr std::int64_t kMostDevices = 1 << 12, kMostMultiprocessors = 1 << 16;

// NVIDIA's data sheets of the SXM modules: dense products in fp32 and 16 bit, memory, each
// direction of NVLink and PCIe, and the network adapter of a machine. Host: a GPU's eighth of a
// DGX, 2 TB and its memory channels (16 of DDR4-3200, 16 of DDR5-4800). We have measured none of
// this.
struct PublishedGpu {
  const char* name;
  const char* module;
  std::int64_t bytes;
  double bandwidth, fp32, peak;
  std::int64_t multiprocessors;
  double pcie, nvlink, network;
  std::int64_t host_bytes;
  double host_bandwidth;
};
constexpr PublishedGpu kPublished[] = {
    {"a100", "an A100 SXM of 80 GB", 80'000'000'000, 2.039e12, 19.5e12, 312e12, 108, 32e9, 300e9,
     25e9, 250'000'000'000, 51e9},
    {"h100", "an H100 SXM of 80 GB", 80'000'000'000, 3.35e12, 67e12, 989e12, 132, 64e9, 450e9, 50e9,
     250'000'000'000, 77e9},
    {"h200", "an H200 SXM of 141 GB", 141'000'000'000, 4.8e12, 67e12, 989e12, 132, 64e9, 450e9,
     50e9, 250'000'000'000, 77e9},
};

// Shares of the data sheet: others have measured 798 of 989 TFLOP/s on an H100 at 8192³ and copies
// at 3.0 of 3.35 TB/s. Updates reach a smaller share of the host's memory bandwidth.
constexpr double kReachedProducts = 0.8, kReachedMemory = 0.9, kReachedUpdates = 0.7;

// The order of magnitude of a driver with loaded libraries, on any GPU.
constexpr std::int64_t kContext = std::int64_t{512} << 20;

MachineProfile profile_of(const PublishedGpu& gpu) {
  const auto rate = [](double bytes) { return Bytes{static_cast<std::int64_t>(bytes)}; };
  MachineProfile machine{.name = std::string(gpu.module) + ", eight a machine",
                         .source = "published"};
  machine.device = {.bytes = {gpu.bytes},
                    .bandwidth = rate(kReachedMemory * gpu.bandwidth),
                    .fp32 = kReachedProducts * gpu.fp32,
                    .bf16 = kReachedProducts * gpu.peak,
                    .fp16 = kReachedProducts * gpu.peak,
                    .kind = MachineKind::kCuda,
                    .multiprocessors = gpu.multiprocessors,
                    .context = {kContext},
                    .peak = gpu.peak};
  machine.link = {.to_device = rate(gpu.pcie), .to_host = rate(gpu.pcie), .latency = 1e-5};
  machine.peers = {.devices = 8, .bandwidth = rate(gpu.nvlink)};
  machine.network.bandwidth = rate(gpu.network);
  machine.host.bytes.count = gpu.host_bytes;
  machine.host.update = rate(kReachedUpdates * gpu.host_bandwidth);
  return machine;
}

}  // namespace

const char* name_of(MachineKind kind) {
  using enum MachineKind;
  static constexpr EnumNames<MachineKind> kNames{{kCpu, "cpu"}, {kCuda, "cuda"}};
  return kNames[kind];
}

void describe(OptionSet& set, MachineProfile& machine) {
  const auto bytes = [&](const std::string& path, Bytes* target, const std::string& help) {
    set.add(path, target, {.help = help, .unit = "bytes", .minimum = 0});
  };
  const auto operations = [&](const std::string& path, double* target) {
    set.add(path, target,
            {.help = "Operations a second of large products",
             .unit = "FLOP/s",
             .minimum = 0,
             .maximum = kMostOperations});
  };
  set.add("name", &machine.name, {.help = "What the machine is"});
  set.add("source", &machine.source, {.help = "Of rates that were not measured"});
  set.add("device.kind", &machine.device.kind, all_named<MachineKind>(),
          {.help = "What ranks compute on"});
  bytes("device.bytes", &machine.device.bytes, "Memory of one device");
  bytes("device.bandwidth", &machine.device.bandwidth, "Of its memory, a second");
  operations("device.fp32", &machine.device.fp32);
  operations("device.bf16", &machine.device.bf16);
  operations("device.fp16", &machine.device.fp16);
  set.add("device.multiprocessors", &machine.device.multiprocessors,
          {.help = "Of a GPU", .minimum = 0, .maximum = kMostMultiprocessors});
  bytes("device.context", &machine.device.context, "Of a GPU's driver and libraries");
  bytes("device.workspace", &machine.device.workspace, "Of a GPU's products, a stream");
  set.add("device.launch", &machine.device.launch,
          {.help = "Of the host, to give a GPU one kernel of an operator",
           .unit = "s",
           .minimum = 0,
           .maximum = kMostLaunch});
  set.add("device.graph_launch", &machine.device.graph_launch,
          {.help = "Of the host, to give it a recorded segment",
           .unit = "s",
           .minimum = 0,
           .maximum = kMostLaunch});
  set.add(
      "device.peak", &machine.device.peak,
      {.help = "Operations a second in 16 bit by its data sheet; utilisation is relative to this",
       .unit = "FLOP/s",
       .minimum = 0,
       .maximum = kMostOperations});
  set.add(
      "peers.devices", &machine.peers.devices,
      {.help = "Devices of one machine", .unit = "devices", .minimum = 0, .maximum = kMostDevices});
  bytes("peers.bandwidth", &machine.peers.bandwidth,
        "From one of its devices to another, a second");
  bytes("link.to_device", &machine.link.to_device, "From host memory, a second");
  bytes("link.to_host", &machine.link.to_host, "To host memory, a second");
  set.add("link.latency", &machine.link.latency,
          {.help = "Fixed seconds of every transfer, in addition to its bytes",
           .unit = "s",
           .minimum = 0,
           .maximum = kMostLinkLatency});
  bytes("host.bytes", &machine.host.bytes, "Host memory of one rank");
  bytes("host.reserve", &machine.host.reserve, "Of host.bytes, for the system and the process");
  set.add("host.cores", &machine.host.cores,
          {.help = "Cores of the host", .unit = "cores", .minimum = 0, .maximum = kMostCores});
  bytes("host.copy", &machine.host.copy, "Bytes read and written by a copy, a second");
  bytes("host.triad", &machine.host.triad, "Bytes read and written by a = b + s c, a second");
  bytes("host.update", &machine.host.update,
        "Bytes read and written by AdamW in fp32 on all cores, a second");
  bytes("host.update_one_core", &machine.host.update_one_core, "The same on one core");
  bytes("disk.bytes", &machine.disk.bytes, "Space of one rank");
  bytes("disk.read", &machine.disk.read, "Past the page cache, a second");
  bytes("disk.write", &machine.disk.write, "The same, written");
  bytes("network.bandwidth", &machine.network.bandwidth,
        "From a device or rank to another machine, a second");
  set.add("network.latency", &machine.network.latency,
          {.help = "Of a message there, one way",
           .unit = "s",
           .minimum = 0,
           .maximum = kMostLinkLatency});
}

MachineProfile parse_machine(const std::string& text, const std::string& name) {
  MachineProfile machine;
  OptionSet set;
  describe(set, machine);
  set.load_yaml(text, name);
  if (machine.name.empty()) machine.name = name;
  return machine;
}

MachineProfile find_machine(const std::string& name_or_path) {
  std::string names, meant;
  for (const PublishedGpu& gpu : kPublished) {
    if (name_or_path == gpu.name) return profile_of(gpu);
    if (::strcasecmp(name_or_path.c_str(), gpu.name) == 0) meant = gpu.name;
    names += std::string(names.empty() ? "" : ", ") + gpu.name;
  }
  if (std::ifstream(name_or_path).is_open()) return load_machine(name_or_path);
  // The name of another GPU is not a misspelling of one of these, so no similar name is proposed.
  throw UserError(
      {.operation = "plan.machine",
       .where = name_or_path,
       .what = "neither a known GPU nor a machine's file",
       .expected = names + ", or a YAML file, or what `strata doctor --save` has written",
       .got = "no readable file",
       .fix = meant.empty()
                  ? "describe the machine in a file, as machines/v100-stronghold.yaml does one"
                  : "did you mean '" + meant + "'?"});
}

MachineProfile load_machine(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.is_open() || text.str().empty()) {
    throw UserError({.operation = "plan.machine",
                     .where = path,
                     .what = "the machine's file cannot be read",
                     .expected = "a YAML file, or what `strata doctor --save` has written",
                     .got = "no readable file",
                     .fix = "name an existing one, such as machines/v100-stronghold.yaml"});
  }
  return parse_machine(text.str(), path);
}

nlohmann::json to_json(const MachineProfile& machine) {
  nlohmann::json json = nlohmann::json::object();
  const auto put = [&](const char* section, const char* field, const auto& value) {
    if (value > 0) json[section][field] = value;
  };
  if (!machine.name.empty()) json["name"] = machine.name;
  if (!machine.source.empty()) json["source"] = machine.source;
  put("device", "bytes", machine.device.bytes.count);
  put("device", "bandwidth", machine.device.bandwidth.count);
  put("device", "fp32", machine.device.fp32);
  put("device", "bf16", machine.device.bf16);
  put("device", "fp16", machine.device.fp16);
  if (machine.device.kind != MachineKind::kCpu)
    json["device"]["kind"] = name_of(machine.device.kind);
  put("device", "multiprocessors", machine.device.multiprocessors);
  put("device", "context", machine.device.context.count);
  put("device", "workspace", machine.device.workspace.count);
  put("device", "launch", machine.device.launch);
  put("device", "graph_launch", machine.device.graph_launch);
  put("device", "peak", machine.device.peak);
  put("peers", "devices", machine.peers.devices);
  put("peers", "bandwidth", machine.peers.bandwidth.count);
  put("link", "to_device", machine.link.to_device.count);
  put("link", "to_host", machine.link.to_host.count);
  put("link", "latency", machine.link.latency);
  put("host", "bytes", machine.host.bytes.count);
  if (machine.host.reserve.count != kHostReserve.count)
    json["host"]["reserve"] = machine.host.reserve.count;
  put("host", "cores", machine.host.cores);
  put("host", "copy", machine.host.copy.count);
  put("host", "triad", machine.host.triad.count);
  put("host", "update", machine.host.update.count);
  put("host", "update_one_core", machine.host.update_one_core.count);
  put("disk", "bytes", machine.disk.bytes.count);
  put("disk", "read", machine.disk.read.count);
  put("disk", "write", machine.disk.write.count);
  put("network", "bandwidth", machine.network.bandwidth.count);
  put("network", "latency", machine.network.latency);
  return json;
}

}  // namespace strata
